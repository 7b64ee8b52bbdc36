// The end of a world while operations are under way: in real processes, with ranks that are stopped at the worst
// moment, and at random ones.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <time.h>

#include <atomic>
#include <cstdlib>
#include <random>
#include <thread>

#include "horovod/horovod.h"
#include "processes.h"
#include "requests_of_tests.h"

namespace {

// ---- a rank is stopped while another prepares an operation with it ----

void stop_here(void*, hvd_handle, hvd_code) { ::raise(SIGSTOP); }

// A broadcast and an allgather that are agreed on together. Rank 1 stops when the first is done, so that rank 0 waits
// for its number of rows.
struct Stuck {
  std::vector<char> small = std::vector<char>(8, 'a'), rows = std::vector<char>(8, 'b');
  const int64_t shape = 8;
  hvd_handle handles[2] = {};

  hvd_code submit(int rank, uint32_t wait_follows) {
    hvd_request requests[] = {test::request_of(HVD_BROADCAST, "first", test::bytes_at(small.data(), &shape, 1)),
                              test::request_of(HVD_ALLGATHER, "second", test::bytes_at(rows.data(), &shape, 1))};
    hvd_submit_options options{};
    options.struct_size = sizeof options;
    options.wait_follows = wait_follows;
    if (rank == 1) options.done = stop_here;
    return hvd_submit_many(requests, 2, &options, handles);
  }
};

// Who drives while rank 0 is shut down, and from where that is called.
enum class Ending { waiting_thread, engine_thread, own_thread, at_exit, two_threads };

int report(const char* what) {
  std::fprintf(stderr, "%s: %s\n", what, hvd_last_error());
  return 2;
}

void shut_down_at_exit() {
  if (hvd_shutdown() != HVD_OK) ::_exit(report("shutdown at exit"));
}

// `is_stopped`: readable once rank 1 is.
int shut_down(Ending ending, int rank, int is_stopped) {
  if (hvd_init(0, nullptr, nullptr) != HVD_OK) return report("init");
  static Stuck stuck;  // atexit handlers run while a thread uses it
  bool nobody_drives = ending == Ending::own_thread;
  const hvd_code submitted = stuck.submit(rank, nobody_drives ? 1 : 0);
  if (rank == 1) {
    if (submitted == HVD_OK) (void)hvd_wait_many(stuck.handles, 2, -1);
    return ::raise(SIGSTOP);  // rank 0 was faster
  }
  if (submitted != HVD_OK) return report("submit");
  std::atomic<hvd_code> outcome = HVD_OK;
  std::thread waiting;
  if (ending != Ending::engine_thread && !nobody_drives) {
    waiting = std::thread([&] { outcome = hvd_wait_many(stuck.handles, 2, -1); });
  }
  char byte = 0;
  if (!nobody_drives && ::read(is_stopped, &byte, 1) != 1) return 3;
  if (ending == Ending::at_exit) {
    std::atexit(shut_down_at_exit);
    waiting.detach();
    std::exit(0);
  }
  std::thread other;
  if (ending == Ending::two_threads) other = std::thread([] { (void)hvd_shutdown(); });
  if (hvd_shutdown() != HVD_OK) return report("shutdown");
  if (other.joinable()) other.join();
  // Nothing uses the memory of an operation any more.
  for (hvd_handle handle : stuck.handles) {
    if (hvd_poll(handle) != 1) return report("poll");
  }
  stuck.rows = {};
  if (waiting.joinable()) waiting.join();
  outcome = hvd_wait(stuck.handles[1], -1);
  return outcome.load() == HVD_OK ? 4 : 0;
}

TEST(Shutdown, EndsWhilePreparingAnOperationWithARankThatIsStopped) {
  struct World {
    std::vector<pid_t> ranks;
    int tell;
  };
  std::vector<World> worlds;
  for (Ending ending :
       {Ending::waiting_thread, Ending::engine_thread, Ending::own_thread, Ending::at_exit, Ending::two_threads}) {
    int ends[2];
    ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    auto body = [&](int rank) { return shut_down(ending, rank, ends[0]); };
    worlds.push_back({test::start_world(1, 2, {}, body), ends[1]});
    ::close(ends[0]);
  }
  for (const World& world : worlds) {
    int status = 0;
    ASSERT_EQ(::waitpid(world.ranks[1], &status, WUNTRACED), world.ranks[1]);
    EXPECT_TRUE(WIFSTOPPED(status)) << status;
    EXPECT_EQ(::write(world.tell, "x", 1), 1);
  }
  for (size_t i = 0; i < worlds.size(); i++) {
    EXPECT_EQ(test::wait_for(worlds[i].ranks[0]), 0) << "ending " << i;
    ::kill(worlds[i].ranks[1], SIGKILL);
    test::wait_for(worlds[i].ranks[1]);
    ::close(worlds[i].tell);
  }
}

// ---- at random moments ----

constexpr int kRounds = 12;
constexpr int kThreads = 3;

// Operations of any kind and size, one after the other, whatever becomes of the world. Their memory is gone as soon as
// the library says that they are over.
void keep_operating(unsigned seed, int thread, const std::atomic<bool>& stop) {
  std::mt19937 random(seed);
  for (int round = 0; !stop; round++) {
    const int64_t count = static_cast<int64_t>(random() % 3 == 0 ? random() % 300'000 : random() % 300) + 1;
    std::vector<char> data(static_cast<size_t>(count), 1);
    const std::string name = std::to_string(thread) + "." + std::to_string(round % 3);
    const hvd_kind kind = round % 3 == 0 ? HVD_ALLGATHER : HVD_ALLREDUCE;
    // Ranks do not agree on the shape of an allreduce, which then fails everywhere.
    const hvd_request request = test::request_of(kind, name.c_str(), test::bytes_at(data.data(), &count, 1));
    hvd_submit_options options{};
    options.struct_size = sizeof options;
    options.wait_follows = static_cast<uint32_t>(random() % 3);
    hvd_handle handle = 0;
    if (hvd_submit(&request, 1, &options, &handle) != HVD_OK) {
      std::this_thread::yield();
      continue;
    }
    while (hvd_wait(handle, 0.001) == HVD_TIMED_OUT) continue;
    hvd_release(handle);
  }
}

int end_worlds(unsigned seed, int rank) {
  std::mt19937 random(seed + static_cast<unsigned>(rank));
  std::atomic<bool> stop = false;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; i++) threads.emplace_back([&, i] { keep_operating(seed + i, i, stop); });
  int result = 0;
  for (int round = 0; round < kRounds && result == 0; round++) {
    if (hvd_init(0, nullptr, nullptr) != HVD_OK) result = report("init");
    timespec moment{.tv_sec = 0, .tv_nsec = static_cast<long>(random() % 4'000'000)};
    ::nanosleep(&moment, nullptr);
    std::thread other;
    if (random() % 3 == 0) other = std::thread([] { (void)hvd_shutdown(); });
    if (hvd_shutdown() != HVD_OK) result = report("shutdown");
    if (other.joinable()) other.join();
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  return result;
}

TEST(Shutdown, EndsAtAnyMomentWithThreadsInsideOperations) {
  const char* given = std::getenv("HVD_TEST_SEED");
  const unsigned seed = given != nullptr ? static_cast<unsigned>(std::atoi(given)) : std::random_device()();
  SCOPED_TRACE("HVD_TEST_SEED=" + std::to_string(seed));
  const std::vector<pid_t> ranks = test::start_world(1, 2, {}, [&](int rank) { return end_worlds(seed, rank); });
  for (size_t rank = 0; rank < ranks.size(); rank++) EXPECT_EQ(test::wait_for(ranks[rank]), 0) << "rank " << rank;
}

// ---- from a callback ----

void shut_down_in_callback(void* context, hvd_handle, hvd_code) { *static_cast<hvd_code*>(context) = hvd_shutdown(); }

TEST(Shutdown, IsRefusedInACallback) {
  ASSERT_EQ(hvd_init(0, nullptr, nullptr), HVD_OK) << hvd_last_error();
  hvd_code code = HVD_OK;
  hvd_submit_options options{};
  options.struct_size = sizeof options;
  options.wait_follows = 1;
  options.done = shut_down_in_callback;
  options.done_context = &code;
  std::vector<char> data(4);
  const int64_t count = 4;
  const hvd_request request = test::request_of(HVD_ALLREDUCE, "tensor", test::bytes_at(data.data(), &count, 1));
  hvd_handle handle = 0;
  ASSERT_EQ(hvd_submit(&request, 1, &options, &handle), HVD_OK);
  EXPECT_EQ(hvd_wait(handle, -1), HVD_OK);
  EXPECT_EQ(code, HVD_PRECONDITION);
  EXPECT_EQ(hvd_shutdown(), HVD_OK);
}

}  // namespace
