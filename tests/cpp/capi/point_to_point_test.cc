// What one rank sends to another, and kinds with a root, in worlds of real processes: on one host, and over TCP.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "horovod/horovod.h"
#include "processes.h"
#include "requests_of_tests.h"

namespace {

struct Places {
  int hosts, ranks_per_host;
  int size() const { return hosts * ranks_per_host; }
};
void PrintTo(const Places& places, std::ostream* out) {
  *out << places.hosts << " hosts with " << places.ranks_per_host << " ranks";
}

// One tensor of bytes under way.
struct Message {
  std::vector<uint8_t> data;
  int64_t shape = 0;
  std::string name;
  hvd_handle handle = 0;

  Message(std::string its_name, size_t bytes, int fill = 0)
      : data(bytes), shape(static_cast<int64_t>(bytes)), name(std::move(its_name)) {
    for (size_t i = 0; i < bytes; i++) data[i] = static_cast<uint8_t>(static_cast<size_t>(fill) + i * 7);
  }
  hvd_code submit(hvd_kind kind, int root) {
    hvd_request request = test::request_of(kind, name.c_str(), test::bytes_at(data.data(), &shape, 1));
    request.root_rank = root;
    return hvd_submit(&request, 1, nullptr, &handle);
  }
  bool wait() const {
    if (hvd_wait(handle, -1) == HVD_OK) return true;
    std::fprintf(stderr, "%s: %s\n", name.c_str(), hvd_last_error());
    return false;
  }
};

#define CHECK_THAT(what)                                                          \
  if (!(what)) {                                                                  \
    std::fprintf(stderr, "line %d: %s: %s\n", __LINE__, #what, hvd_last_error()); \
    return __LINE__ % 250 + 1;                                                    \
  }

// Everything to everybody at once, submitted in another order on every rank.
int exchange_all(int rank, int size) {
  std::deque<Message> sent, received;
  for (size_t bytes : {0, 1, 1000, 100000, 1500000}) {
    for (int step = 1; step < size; step++) {
      int to = (rank + step) % size, from = (rank + size - step) % size;
      std::string name = "t" + std::to_string(bytes);
      CHECK_THAT(sent.emplace_back(name, bytes, rank * 3 + to).submit(HVD_SEND, to) == HVD_OK);
      CHECK_THAT(received.emplace_back(name, bytes).submit(HVD_RECEIVE, from) == HVD_OK);
    }
  }
  for (const Message& message : sent) CHECK_THAT(message.wait());
  size_t at = 0;
  for (size_t bytes : {0, 1, 1000, 100000, 1500000}) {
    for (int step = 1; step < size; step++, at++) {
      int from = (rank + size - step) % size;
      CHECK_THAT(received[at].wait());
      CHECK_THAT(received[at].data == Message("", bytes, from * 3 + rank).data);
    }
  }
  return 0;
}

// Two ranks talk while the others reduce: neither waits for the other.
int ping_pong_beside_collectives(int rank, int size) {
  for (int turn = 0; turn < 50; turn++) {
    std::string name = "p#" + std::to_string(turn);
    if (rank < 2) {
      Message message(name, 5000, turn);
      CHECK_THAT(message.submit(rank == turn % 2 ? HVD_SEND : HVD_RECEIVE, 1 - rank) == HVD_OK && message.wait());
      CHECK_THAT(message.data == Message("", 5000, turn).data);
    }
    if (turn % 10 == 0) {
      Message sum("sum", 300);
      CHECK_THAT(sum.submit(HVD_ALLREDUCE, -1) == HVD_OK && sum.wait());
      CHECK_THAT(sum.data[1] == static_cast<uint8_t>(7 * size));
    }
  }
  return 0;
}

// Rank 0 receives from whoever sends; tags keep streams apart, and each message is found once.
int receive_from_anybody(int rank, int size) {
  constexpr int kEach = 20;
  if (rank != 0) {
    for (int i = 0; i < kEach; i++) {
      Message other("other#" + std::to_string(i), 3, 100 + rank), message("tag#" + std::to_string(i), 40, rank + i);
      CHECK_THAT(other.submit(HVD_SEND, 0) == HVD_OK && message.submit(HVD_SEND, 0) == HVD_OK);
      CHECK_THAT(message.wait() && other.wait());
    }
    return 0;
  }
  std::vector<int> next(static_cast<size_t>(size), 0);
  for (const char* tag : {"tag#", "other#"}) {
    bool is_tag = std::string(tag) == "tag#";
    for (int i = 0; is_tag && i < (size - 1) * kEach; i++) {
      Message probe(tag + std::to_string(i), 0);
      CHECK_THAT(probe.submit(HVD_PROBE, -1) == HVD_OK && probe.wait());
      int from = hvd_result_value(probe.handle);
      CHECK_THAT(from > 0 && from < size);
      int number = next[static_cast<size_t>(from)]++;
      Message message(tag + std::to_string(number), 40), other("other#" + std::to_string(number), 3);
      CHECK_THAT(message.submit(HVD_RECEIVE, from) == HVD_OK && message.wait());
      CHECK_THAT(message.data == Message("", 40, from + number).data);
      CHECK_THAT(other.submit(HVD_RECEIVE, from) == HVD_OK && other.wait());
      CHECK_THAT(other.data == Message("", 3, 100 + from).data);
    }
  }
  for (int rank_of = 1; rank_of < size; rank_of++) CHECK_THAT(next[static_cast<size_t>(rank_of)] == kEach);
  return 0;
}

int refuse_what_cannot_be(int rank, int size) {
  for (int32_t pair : {-1, -2, -3}) {  // pairs have no ids in the C ABI
    CHECK_THAT(hvd_process_set_size(pair) == -HVD_INVALID_ARGUMENT);
    CHECK_THAT(hvd_process_set_rank(pair) == -HVD_INVALID_ARGUMENT);
    CHECK_THAT(hvd_remove_process_set(pair) == 0);
    CHECK_THAT(hvd_leave_process_set(pair) == HVD_INVALID_ARGUMENT);
  }
  for (int peer : {rank, size, -1}) {
    CHECK_THAT(Message("a", 4).submit(HVD_SEND, peer) == HVD_INVALID_ARGUMENT);
  }
  if (rank < 2) {  // sizes that do not match are an error on both sides, and not for what follows
    Message wrong("size", rank == 0 ? 8 : 9), right("size", 8, 5);
    CHECK_THAT(wrong.submit(rank == 0 ? HVD_SEND : HVD_RECEIVE, 1 - rank) == HVD_OK);
    CHECK_THAT(hvd_wait(wrong.handle, -1) == HVD_PRECONDITION);
    CHECK_THAT(std::strstr(hvd_last_error(), "mismatched shapes") != nullptr);
    CHECK_THAT(right.submit(rank == 0 ? HVD_SEND : HVD_RECEIVE, 1 - rank) == HVD_OK && right.wait());
  }
  return 0;
}

// The last rank is the root.
int use_a_root(int rank, int size) {
  int root = size - 1;
  for (size_t rows : {1, 700, 90000}) {
    Message sum("sum", rows), bits("bits", rows, rank);
    std::string name = "r" + std::to_string(rows);
    sum.name = name;
    CHECK_THAT(sum.submit(HVD_REDUCE, root) == HVD_OK && sum.wait());
    CHECK_THAT(rank != root || sum.data[rows - 1] == static_cast<uint8_t>((rows - 1) * 7 * static_cast<size_t>(size)));
    hvd_request any = test::request_of(HVD_ALLREDUCE, "or", test::bytes_at(bits.data.data(), &bits.shape, 1));
    any.reduce_op = HVD_BIT_OR;
    CHECK_THAT(hvd_submit(&any, 1, nullptr, &bits.handle) == HVD_OK && bits.wait());
    uint8_t expected = 0;
    for (int p = 0; p < size; p++) expected |= static_cast<uint8_t>(p);
    CHECK_THAT(bits.data[0] == expected);

    Message mine(name, rows * static_cast<size_t>(rank), rank);  // rank 0 has none
    std::vector<uint8_t> all(rows * static_cast<size_t>(size * (size - 1) / 2));
    auto room = static_cast<int64_t>(all.size());
    hvd_request gather = test::request_of(HVD_GATHER, name.c_str(), test::bytes_at(mine.data.data(), &mine.shape, 1));
    gather.root_rank = root;
    gather.output = rank == root ? test::bytes_at(all.data(), &room, 1) : hvd_tensor{};
    CHECK_THAT(hvd_submit(&gather, 1, nullptr, &mine.handle) == HVD_OK && mine.wait());
    size_t at = 0;
    for (int p = 0; rank == root && p < size; p++) {
      Message theirs("", rows * static_cast<size_t>(p), p);
      CHECK_THAT(std::equal(theirs.data.begin(), theirs.data.end(), all.begin() + static_cast<ptrdiff_t>(at)));
      at += theirs.data.size();
    }

    Message whole(name, rows * static_cast<size_t>(size) + 1, 9), part(name, rows + (rank == 0 ? 1 : 0));
    hvd_request scatter = test::request_of(HVD_SCATTER, "scatter", test::bytes_at(whole.data.data(), &whole.shape, 1));
    scatter.root_rank = root;
    if (rank != root) scatter.input.data = nullptr;
    scatter.output = test::bytes_at(part.data.data(), &part.shape, 1);
    CHECK_THAT(hvd_submit(&scatter, 1, nullptr, &part.handle) == HVD_OK && part.wait());
    size_t begin = rows * static_cast<size_t>(rank) + (rank == 0 ? 0 : 1);
    CHECK_THAT(std::equal(part.data.begin(), part.data.end(), whole.data.begin() + static_cast<ptrdiff_t>(begin)));
  }
  return 0;
}

// Every pair of neighbours forms a set while the others do something else, uses it and leaves it, again and again.
int form_and_leave(int rank, int size) {
  for (int turn = 0; turn < 20; turn++) {
    int first = (rank + turn) % 2 == 0 ? rank : rank - 1;
    if (first < 0 || first + 1 >= size) continue;
    std::vector<int32_t> ranks{first, first + 1};
    if (size == 2) ranks = {rank};  // the world is a set already
    hvd_handle handle = 0;
    CHECK_THAT(hvd_form_process_set(ranks.data(), static_cast<int32_t>(ranks.size()), &handle) == HVD_OK);
    CHECK_THAT(hvd_wait(handle, -1) == HVD_OK);
    int32_t set = hvd_result_value(handle);
    hvd_release(handle);
    CHECK_THAT(set > 0 && hvd_process_set_size(set) == static_cast<int32_t>(ranks.size()));
    Message sum("sum", 3000);
    hvd_request request = test::request_of(HVD_ALLREDUCE, "sum", test::bytes_at(sum.data.data(), &sum.shape, 1));
    request.process_set = set;
    CHECK_THAT(hvd_submit(&request, 1, nullptr, &sum.handle) == HVD_OK);
    CHECK_THAT(hvd_leave_process_set(set) == HVD_OK);  // what was submitted before is done all the same
    CHECK_THAT(sum.wait());
    CHECK_THAT(sum.data[5] == static_cast<uint8_t>(35 * ranks.size()));
    hvd_release(sum.handle);
  }
  const int32_t others[] = {(rank + 1) % size};
  hvd_handle handle = 0;
  CHECK_THAT(hvd_form_process_set(others, 1, &handle) == HVD_INVALID_ARGUMENT);
  CHECK_THAT(hvd_leave_process_set(0) == HVD_INVALID_ARGUMENT);
  CHECK_THAT(hvd_leave_process_set(99) != HVD_OK);
  return 0;
}

// Callbacks that are attached while the operation may end at any moment are called once each.
int attach_callbacks(int rank, int size) {
  static std::atomic<int> calls;
  for (int turn = 0; turn < 500; turn++) {
    Message sum("sum", 64);
    CHECK_THAT(sum.submit(HVD_ALLREDUCE, -1) == HVD_OK);
    auto attach = [&] {
      return hvd_when_done(
          sum.handle,
          [](void* count, hvd_handle, hvd_code code) {
            *static_cast<std::atomic<int>*>(count) += code == HVD_OK ? 1 : 1000;
          },
          &calls);
    };
    hvd_code first = HVD_UNKNOWN, second = HVD_UNKNOWN;
    std::thread other([&] { second = attach(); });
    first = attach();
    other.join();
    CHECK_THAT(sum.wait());
    hvd_release(sum.handle);
    // The second one is refused if the operation was not over.
    CHECK_THAT((first == HVD_OK || second == HVD_OK) && (first == HVD_OK || first == HVD_INVALID_ARGUMENT));
    calls -= (first == HVD_OK) + (second == HVD_OK);
  }
  Message last("last", 1);  // callbacks run before the next operation does
  CHECK_THAT(last.submit(HVD_ALLREDUCE, -1) == HVD_OK && last.wait());
  CHECK_THAT(calls == 0 && rank < size);
  return 0;
}

class PointToPoint : public testing::TestWithParam<Places> {
 protected:
  static void run(int (*body)(int rank, int size)) {
    const Places places = GetParam();
    auto in_world = [&](int rank) {
      ::setenv("HOROVOD_DYNAMIC_PROCESS_SETS", "1", 1);
      if (hvd_init(0, nullptr, nullptr) != HVD_OK) {
        std::fprintf(stderr, "rank %d: %s\n", rank, hvd_last_error());
        return 251;
      }
      if (int code = body(rank, places.size()); code != 0) return code;
      return hvd_shutdown() == HVD_OK ? 0 : 252;
    };
    const std::vector<pid_t> ranks = test::start_world(places.hosts, places.ranks_per_host, {}, in_world);
    for (size_t rank = 0; rank < ranks.size(); rank++) EXPECT_EQ(test::wait_for(ranks[rank]), 0) << "rank " << rank;
  }
};

TEST_P(PointToPoint, EverybodySendsToEverybodyAtOnce) { run(exchange_all); }
TEST_P(PointToPoint, GoesOnBesideCollectives) { run(ping_pong_beside_collectives); }
TEST_P(PointToPoint, ProbesFindEachMessageOnce) { run(receive_from_anybody); }
TEST_P(PointToPoint, MistakesAreErrorsOnBothSides) { run(refuse_what_cannot_be); }
TEST_P(PointToPoint, MembersFormAndLeaveSets) { run(form_and_leave); }
TEST_P(PointToPoint, CallbacksAttachedLateAreCalledOnce) { run(attach_callbacks); }
TEST_P(PointToPoint, RootsReduceGatherAndScatter) { run(use_a_root); }

INSTANTIATE_TEST_SUITE_P(, PointToPoint,
                         testing::Values(Places{1, 2}, Places{1, 3}, Places{2, 1}, Places{2, 2}, Places{5, 1}));

}  // namespace
