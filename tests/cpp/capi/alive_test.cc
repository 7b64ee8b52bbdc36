// In worlds that keep watch, a rank that works is never lost, however long one operation keeps its thread, and one that
// is stopped is. Real processes; the silence that a rank is allowed is as short as it can be.
#include <gtest/gtest.h>
#include <signal.h>
#include <time.h>

#include <cstdlib>
#include <cstring>
#include <set>

#include "horovod/horovod.h"
#include "processes.h"
#include "requests_of_tests.h"

namespace {

constexpr double kBusySeconds = 2.5;
constexpr int64_t kRow = 1 << 20;

struct Watched {
  int hosts, ranks_per_host;
  std::set<int> special;   // ranks that are busy, or stopped
  int64_t megabytes = 16;  // that each rank contributes: more than the buffers of the sockets between two hosts take
  int size() const { return hosts * ranks_per_host; }
};

test::Variables watchful() {
  return {{"HOROVOD_ELASTIC", "1"}, {"HOROVOD_SILENCE_SECONDS", "1"}, {"HOROVOD_HEARTBEAT_SECONDS", "0.25"}};
}

void* allocate_at_once(void*, int32_t, int32_t, int32_t, const int64_t* shape) {
  return std::malloc(static_cast<size_t>(shape[0] * shape[1]));
}

// Memory that takes long to come, as that of a huge output does, and keeps the thread that drives.
void* allocate_slowly(void* context, int32_t index, int32_t dtype, int32_t ndim, const int64_t* shape) {
  timespec busy{.tv_sec = 2, .tv_nsec = static_cast<long>((kBusySeconds - 2) * 1e9)};
  ::nanosleep(&busy, nullptr);
  return allocate_at_once(context, index, dtype, ndim, shape);
}

void* stop_here(void*, int32_t, int32_t, int32_t, const int64_t*) {
  ::raise(SIGSTOP);
  return nullptr;
}

// Gathers rows of the rank's number.
hvd_code gather(const Watched& world, int rank, hvd_allocate allocate) {
  const int64_t shape[] = {world.megabytes, kRow};
  std::vector<char> rows(static_cast<size_t>(world.megabytes * kRow), static_cast<char>(rank));
  const hvd_request request = test::request_of(HVD_ALLGATHER, "rows", test::bytes_at(rows.data(), shape, 2));
  hvd_submit_options options{};
  options.struct_size = sizeof options;
  options.wait_follows = 1;
  options.allocate = allocate;
  hvd_handle handle = 0;
  hvd_code code = hvd_submit(&request, 1, &options, &handle);
  if (code == HVD_OK) code = hvd_wait(handle, -1);
  if (code != HVD_OK) return code;
  hvd_tensor output{};
  output.struct_size = sizeof output;
  hvd_result(handle, 0, &output);
  const char* data = static_cast<const char*>(output.data);
  bool right = output.shape[0] == world.size() * world.megabytes;
  for (int64_t row = 0; right && row < output.shape[0]; row++) {
    right = data[row * kRow] == static_cast<char>(row / world.megabytes);
  }
  std::free(output.data);
  hvd_release(handle);
  return right ? HVD_OK : HVD_UNKNOWN;
}

int stay_busy(const Watched& world, int rank) {
  if (hvd_init(0, nullptr, nullptr) != HVD_OK) return 1;
  for (hvd_allocate allocate : {world.special.contains(rank) ? allocate_slowly : allocate_at_once, allocate_at_once}) {
    if (gather(world, rank, allocate) == HVD_OK) continue;
    std::fprintf(stderr, "rank %d: %s\n", rank, hvd_last_error());
    return 2;
  }
  return hvd_shutdown() == HVD_OK ? 0 : 3;
}

int lose_a_rank(const Watched& world, int rank) {
  if (hvd_init(0, nullptr, nullptr) != HVD_OK) return 1;
  hvd_code code = gather(world, rank, world.special.contains(rank) ? stop_here : allocate_at_once);
  std::string text = hvd_last_error();
  std::string name = "rank " + std::to_string(*world.special.begin()) + " ";
  if (code != HVD_PEER_LOST || text.find(name) == std::string::npos || text.find("silent") == std::string::npos) {
    std::fprintf(stderr, "rank %d: %d %s\n", rank, code, text.c_str());
    return 2;
  }
  return hvd_shutdown() == HVD_OK ? 0 : 3;
}

// All at once, because they only wait.
TEST(Alive, ARankIsNotLostWhileAnOperationKeepsItBusy) {
  const std::vector<Watched> worlds{{1, 2, {0}}, {1, 2, {1}}, {2, 2, {0, 3}}, {2, 2, {1, 2}}, {2, 1, {1}, 48}};
  std::vector<std::vector<pid_t>> ranks;
  for (const Watched& world : worlds) {
    auto body = [&](int rank) { return stay_busy(world, rank); };
    ranks.push_back(test::start_world(world.hosts, world.ranks_per_host, watchful(), body));
  }
  for (size_t i = 0; i < worlds.size(); i++) {
    for (size_t rank = 0; rank < ranks[i].size(); rank++) {
      EXPECT_EQ(test::wait_for(ranks[i][rank]), 0) << "rank " << rank << " of world " << i;
    }
  }
}

TEST(Alive, ARankThatIsStoppedInsideAnOperationIsLost) {
  const std::vector<Watched> worlds{{1, 2, {0}, 1}, {1, 2, {1}, 1}, {2, 2, {0}, 1}, {2, 2, {3}, 1}};
  std::vector<std::vector<pid_t>> ranks;
  for (const Watched& world : worlds) {
    auto body = [&](int rank) { return lose_a_rank(world, rank); };
    ranks.push_back(test::start_world(world.hosts, world.ranks_per_host, watchful(), body));
  }
  for (size_t i = 0; i < worlds.size(); i++) {
    const int stopped = *worlds[i].special.begin();
    for (int rank = 0; rank < worlds[i].size(); rank++) {
      if (rank == stopped) continue;
      EXPECT_EQ(test::wait_for(ranks[i][static_cast<size_t>(rank)]), 0) << "rank " << rank << " of world " << i;
    }
    ::kill(ranks[i][static_cast<size_t>(stopped)], SIGKILL);
    EXPECT_TRUE(WIFSIGNALED(test::wait_for(ranks[i][static_cast<size_t>(stopped)])));
  }
}

// Rank 0 exchanges data with it at that moment. It learns of the loss from its first operation at the latest.
int lose_a_rank_at_the_start(int rank) {
  hvd_code code = hvd_init(0, nullptr, nullptr);
  if (code == HVD_OK) code = gather({2, 1, {}, 1}, rank, allocate_at_once);
  const std::string text = hvd_last_error();
  if (code == HVD_PEER_LOST && text.find("rank 1 ") != std::string::npos) return 0;
  std::fprintf(stderr, "rank %d: %d %s\n", rank, code, text.c_str());
  return 1;
}

TEST(Alive, ARankThatDiesWhileBackendsLoadIsLost) {
  const test::Variables variables{{"HOROVOD_BACKENDS", HVD_DYING_BACKEND}};
  const std::vector<pid_t> ranks = test::start_world(2, 1, variables, lose_a_rank_at_the_start);
  EXPECT_TRUE(WIFSIGNALED(test::wait_for(ranks[1])));
  EXPECT_EQ(test::wait_for(ranks[0]), 0);
}

}  // namespace
