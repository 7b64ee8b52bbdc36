#include <atomic>
#include <thread>

#include "comm.h"
#include "program.h"

using namespace gpu;

namespace {

constexpr size_t kCount = 100;

struct Work {
  Stream stream;
  Buffer a{kCount * 4};
  Work() { CU(cuMemsetD8Async(a, 0, kCount * 4, stream)); }
};

int all_reduce(const Comm& comm, const Work& work, size_t count = kCount) {
  return nccl().ncclAllReduce(work.a.pointer(), work.a.pointer(), count, nc::kInt32, nc::kSum, comm, work.stream);
}

// The others go on when rank 0 has come here.
void wait_for_word_of_rank_0() {
  char word = 0;
  ranks::share(&word, 1);
}

// Aborts all in one group.
void abort_all(std::initializer_list<Comm*> comms) {
  NC(ncclGroupStart());
  for (Comm* comm : comms) NC(ncclCommAbort(comm->take()));
  NC(ncclGroupEnd());
}

void two_communicators_in_order() {
  const Device device(ranks::rank());
  const Comm one, two;
  const Work first, second;
  for (int step = 0; step < 5; ++step) {
    one.done(all_reduce(one, first));
    two.done(all_reduce(two, second));
  }
  first.stream.finish();
  second.stream.finish();
}

void two_communicators_in_different_orders() {
  const Device device(ranks::rank());
  const Comm one, two;
  const Work first, second;
  if (ranks::rank() == 0) {
    one.done(all_reduce(one, first));
    two.done(all_reduce(two, second));
  } else {
    two.done(all_reduce(two, second));
    one.done(all_reduce(one, first));
  }
  first.stream.finish();
  second.stream.finish();
}

// 0 and 1, 1 and 2, 2 and 0 share a communicator each; each rank begins with another one.
void three_ranks_in_a_cycle() {
  const Device device(ranks::rank());
  const int rank = ranks::rank();
  void* pairs[3] = {};
  for (int pair = 0; pair < 3; ++pair) {
    const auto id = shared_id();
    const int first = pair, second = (pair + 1) % 3;
    if (rank != first && rank != second) continue;
    auto with = config(false);
    const int result = nccl().ncclCommInitRankConfig(&pairs[pair], 2, id, rank == first ? 0 : 1, &with);
    EXPECT_CODE(nc::kSuccess, settled(pairs[pair], result));
  }
  const Work one, two;
  // Rank r begins with pair r, which rank r + 1 has second.
  int turn = 0;
  for (int pair : {rank, (rank + 2) % 3}) {
    const Work& work = turn++ == 0 ? one : two;
    EXPECT_CODE(0, settled(pairs[pair], nccl().ncclAllReduce(work.a.pointer(), work.a.pointer(), kCount, nc::kInt32,
                                                             nc::kSum, pairs[pair], work.stream)));
  }
  one.stream.finish();
  two.stream.finish();
}

void different_counts() {
  const Device device(ranks::rank());
  const Comm comm;
  const Work work;
  comm.done(all_reduce(comm, work, ranks::rank() == 0 ? kCount : kCount - 1));
  work.stream.finish();
}

void different_kinds() {
  const Device device(ranks::rank());
  const Comm comm;
  const Work work;
  comm.done(ranks::rank() == 0
                ? all_reduce(comm, work)
                : nccl().ncclBroadcast(work.a.pointer(), work.a.pointer(), kCount, nc::kInt32, 0, comm, work.stream));
  work.stream.finish();
}

void different_ops() {
  const Device device(ranks::rank());
  const Comm comm;
  const Work work;
  comm.done(nccl().ncclAllReduce(work.a.pointer(), work.a.pointer(), kCount, nc::kInt32,
                                 ranks::rank() == 0 ? nc::kSum : nc::kMax, comm, work.stream));
  work.stream.finish();
}

void different_sizes_of_a_pair() {
  const Device device(ranks::rank());
  const Comm comm;
  const Work work;
  comm.done(ranks::rank() == 0 ? nccl().ncclSend(work.a.pointer(), 10, nc::kInt32, 1, comm, work.stream)
                               : nccl().ncclRecv(work.a.pointer(), 11, nc::kInt32, 0, comm, work.stream));
  work.stream.finish();
}

// The first call may end at once, which is allowed; then there is no rule to break.
void call_during_progress() {
  const Device device(ranks::rank());
  const Comm comm;
  const Work work;
  for (;;) {
    if (all_reduce(comm, work) == nc::kInProgress) all_reduce(comm, work);
  }
}

void launch_during_progress() {
  const Device device(ranks::rank());
  const Comm comm;
  const Work work;
  for (;;)
    if (all_reduce(comm, work) == nc::kInProgress) cuda().cuMemsetD8Async(work.a, 0, 4, work.stream);
}

void event_during_progress() {
  const Device device(ranks::rank());
  const Comm comm;
  const Work work;
  const Event event;
  for (;;)
    if (all_reduce(comm, work) == nc::kInProgress) cuda().cuEventRecord(event, work.stream);
}

// Rank 1 never launches, so rank 0's kernels stay.
void aborted_in_one_group() {
  const Device device(ranks::rank());
  Comm one, two;
  const Work first, second;
  if (ranks::rank() == 0) {
    one.done(all_reduce(one, first));
    two.done(all_reduce(two, second));
  }
  wait_for_word_of_rank_0();
  abort_all({&one, &two});
  first.stream.finish();
  second.stream.finish();
  const Comm next;  // a new one works in the same process
  next.done(all_reduce(next, first));
  first.stream.finish();
}

void aborted_one_by_one() {
  const Device device(ranks::rank());
  Comm one, two;
  const Work first, second;
  if (ranks::rank() != 0) {
    ranks::wait_for_rank_0();
    return abort_all({&one, &two});
  }
  one.done(all_reduce(one, first));
  two.done(all_reduce(two, second));
  NC(ncclCommAbort(one.take()));
  NC(ncclCommAbort(two.take()));
}

void called_after_abort() {
  const Device device(ranks::rank());
  Comm comm(true);
  const Work work;
  void* handle = comm.take();
  NC(ncclCommAbort(handle));
  nccl().ncclAllReduce(work.a.pointer(), work.a.pointer(), kCount, nc::kInt32, nc::kSum, handle, work.stream);
}

// One thread waits inside a blocking init for a rank that never comes, the other calls on the same GPU.
void two_threads_inside() {
  const Device device;
  const Comm alone(true);
  const Work work;
  nc::UniqueId id{};
  NC(ncclGetUniqueId(&id));
  std::thread waits([&] {
    CU(cuCtxPushCurrent_v2(device.context()));
    void* comm = nullptr;
    nccl().ncclCommInitRank(&comm, 2, id, 0);
  });
  for (;;) all_reduce(alone, work);
}

void wrong_context() {
  const Device device;
  const Comm alone(true);
  const Work work;
  const Device other(1);
  all_reduce(alone, work);
}

void missing_wait_before_nccl() {
  const Device device;
  const Comm alone;
  const Work work;
  const Stream other;
  CU(cuMemsetD8Async(work.a, 1, kCount * 4, other));
  alone.done(all_reduce(alone, work));
  other.finish();
  work.stream.finish();
}

void missing_wait_after_nccl() {
  const Device device;
  const Comm alone;
  const Work work;
  const Stream other;
  const Buffer result(kCount * 4);
  alone.done(all_reduce(alone, work));
  CU(cuMemcpyDtoDAsync_v2(result, work.a, kCount * 4, other));
  other.finish();
  work.stream.finish();
}

void freed_before_nccl_has_ended() {
  const Device device;
  const Comm alone;
  const Work work;
  uint64_t output = 0;
  CU(cuMemAlloc_v2(&output, kCount * 4));
  alone.done(nccl().ncclAllReduce(work.a.pointer(), reinterpret_cast<void*>(output), kCount, nc::kInt32, nc::kSum,
                                  alone, work.stream));
  CU(cuMemFree_v2(output));
}

void host_memory_in_nccl() {
  const Device device;
  const Comm alone(true);
  const Stream stream;
  std::vector<int> values(kCount);
  nccl().ncclAllReduce(values.data(), values.data(), kCount, nc::kInt32, nc::kSum, alone, stream);
}

void overlapping_buffers() {
  const Device device;
  const Comm alone(true);
  const Work work;
  nccl().ncclAllReduce(work.a.pointer(), static_cast<char*>(work.a.pointer()) + 4, kCount - 1, nc::kInt32, nc::kSum,
                       alone, work.stream);
}

void registered_on_one_rank() {
  const Device device(ranks::rank());
  const Comm comm;
  const Work work;
  void* handle = nullptr;
  if (ranks::rank() == 0) NC(ncclCommRegister(comm, work.a.pointer(), kCount * 4, &handle));
  comm.done(all_reduce(comm, work));
  work.stream.finish();
}

void freed_while_registered() {
  const Device device;
  const Comm alone;
  void *handle = nullptr, *memory = nullptr;
  NC(ncclMemAlloc(&memory, 1024));
  NC(ncclCommRegister(alone, memory, 1024, &handle));
  nccl().ncclMemFree(memory);
}

void leaked_communicator() {
  const Device device(ranks::rank());
  Comm comm(true);
  comm.take();
}

void two_ranks_on_one_gpu() {
  const Device device;
  void* comm = nullptr;
  const auto id = shared_id();
  EXPECT_CODE(nc::kInvalidUsage, nccl().ncclCommInitRank(&comm, ranks::size(), id, ranks::rank()));
  EXPECT(std::strstr(nccl().ncclGetLastError(nullptr), "Duplicate GPU") != nullptr);
}

// Rank 1 ends without a word while rank 0's kernel waits for it.
void peer_is_lost() {
  const Device device(ranks::rank());
  Comm comm;
  const Work work;
  wait_for_word_of_rank_0();
  if (ranks::rank() == 1) std::_Exit(0);
  int state = settled(comm, all_reduce(comm, work));
  while (state == 0) NC(ncclCommGetAsyncError(comm, &state));
  EXPECT(state == nc::kRemoteError);
  NC(ncclCommAbort(comm.take()));
  work.stream.finish();
}

// For runs with faults: an allreduce per step, and an abort at the first sign of trouble.
void steps_until_trouble() {
  const Device device(ranks::rank());
  void* comm = nullptr;
  auto with = config(false);
  const auto id = shared_id();
  int state = nccl().ncclCommInitRankConfig(&comm, ranks::size(), id, ranks::rank(), &with);
  if (comm != nullptr) state = settled(comm, state);
  const Work work;
  for (int step = 0; step < 4 && state == 0; ++step) {
    state = settled(comm, nccl().ncclAllReduce(work.a.pointer(), work.a.pointer(), kCount, nc::kInt32, nc::kSum, comm,
                                               work.stream));
    while (state == 0 && cuda().cuStreamQuery(work.stream) == standin::cuda::kNotReady)
      NC(ncclCommGetAsyncError(comm, &state));
  }
  std::printf("ended with %d\n", state);
  if (comm == nullptr) return;
  if (state == 0) {  // an abort would disturb a peer that is still at its last step
    work.stream.finish();
    EXPECT_CODE(0, settled(comm, nccl().ncclCommFinalize(comm)));
    NC(ncclCommDestroy(comm));
    return;
  }
  NC(ncclCommAbort(comm));
  work.stream.finish();
}

}  // namespace

std::vector<Program> nccl_programs() {
  return {
      {"two_communicators_in_order", 2, "", two_communicators_in_order},
      {"two_communicators_in_different_orders", 2, "wait for each other in a cycle",
       two_communicators_in_different_orders},
      {"three_ranks_in_a_cycle", 3, "wait for each other in a cycle", three_ranks_in_a_cycle},
      {"different_counts", 2, "ranks call different operations", different_counts},
      {"different_kinds", 2, "ranks call different operations", different_kinds},
      {"different_ops", 2, "ranks call different operations", different_ops},
      {"different_sizes_of_a_pair", 2, "ranks call different operations", different_sizes_of_a_pair},
      {"call_during_progress", 1, "while a call is in progress", call_during_progress},
      {"launch_during_progress", 1, "is still in progress", launch_during_progress},
      {"event_during_progress", 1, "is still in progress", event_during_progress},
      {"aborted_in_one_group", 2, "", aborted_in_one_group},
      {"aborted_one_by_one", 2, "Abort all in one group", aborted_one_by_one},
      {"called_after_abort", 1, "the communicator has ended", called_after_abort},
      {"two_threads_inside", 1, "two threads in NCCL at the same time", two_threads_inside},
      {"wrong_context", 1, "but the current context is of GPU 1", wrong_context},
      {"missing_wait_before_nccl", 1, "two accesses that nothing orders", missing_wait_before_nccl},
      {"missing_wait_after_nccl", 1, "two accesses that nothing orders", missing_wait_after_nccl},
      {"freed_before_nccl_has_ended", 1, "two accesses that nothing orders", freed_before_nccl_has_ended},
      {"host_memory_in_nccl", 1, "not in any allocation", host_memory_in_nccl},
      {"overlapping_buffers", 1, "overlap, but are not the same place", overlapping_buffers},
      {"registered_on_one_rank", 2, "registered memory on some ranks only", registered_on_one_rank},
      {"freed_while_registered", 1, "freed while it is registered", freed_while_registered},
      {"leaked_communicator", 2, "still alive at exit", leaked_communicator},
      {"two_ranks_on_one_gpu", 2, "", two_ranks_on_one_gpu},
      {"peer_is_lost", 2, "", peer_is_lost},
      {"steps_until_trouble", 2, "", steps_until_trouble},
  };
}
