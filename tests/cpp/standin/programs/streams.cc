#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "core/counts.h"
#include "gpu.h"
#include "program.h"

using namespace gpu;
namespace cu = standin::cuda;

namespace {

constexpr size_t kBytes = 4096;
constexpr const char* kUnordered = "two accesses that nothing orders";

void host_access(const void* block, size_t bytes, bool writes) {
  const auto note =
      reinterpret_cast<void (*)(const void*, uint64_t, int)>(look_up(cuda().library, "hvd_standin_host_access"));
  note(block, bytes, writes ? 1 : 0);
}

void ordered_by_events() {
  const Device device;
  const Stream producer, consumer;
  const Buffer a(kBytes), b(kBytes);
  CU(cuMemsetD8Async(a, 7, kBytes, producer));
  order(producer, consumer);
  CU(cuMemcpyDtoDAsync_v2(b, a, kBytes, consumer));
  order(consumer, producer);
  CU(cuMemsetD8Async(a, 8, kBytes, producer));
  producer.finish();
  for (unsigned char value : read<unsigned char>(b, kBytes, consumer)) EXPECT(value == 7);
  for (unsigned char value : read<unsigned char>(a, kBytes, producer)) EXPECT(value == 8);
}

void missing_wait_for_input() {
  const Device device;
  const Stream producer, consumer;
  const Buffer a(kBytes), b(kBytes);
  CU(cuMemsetD8Async(a, 7, kBytes, producer));
  CU(cuMemcpyDtoDAsync_v2(b, a, kBytes, consumer));
  producer.finish();
  consumer.finish();
}

void missing_wait_for_reader() {
  const Device device;
  const Stream producer, consumer;
  const Buffer a(kBytes), b(kBytes);
  CU(cuMemsetD8Async(a, 7, kBytes, producer));
  order(producer, consumer);
  CU(cuMemcpyDtoDAsync_v2(b, a, kBytes, consumer));
  CU(cuMemsetD8Async(a, 8, kBytes, producer));
  producer.finish();
  consumer.finish();
}

// Half of each buffer is common to both copies.
void overlap_of_some_bytes() {
  const Device device;
  const Stream one, two;
  const Buffer a(kBytes), b(kBytes);
  CU(cuMemsetD8Async(a, 7, kBytes / 2 + 1, one));
  CU(cuMemsetD8Async(a + kBytes / 2, 7, kBytes / 2, two));
  one.finish();
  two.finish();
}

void neighbours_do_not_conflict() {
  const Device device;
  const Stream one, two;
  const Buffer a(kBytes);
  CU(cuMemsetD8Async(a, 7, kBytes / 2, one));
  CU(cuMemsetD8Async(a + kBytes / 2, 7, kBytes / 2, two));
  one.finish();
  two.finish();
}

void freed_early() {
  const Device device;
  const Stream stream;
  uint64_t a = 0;
  CU(cuMemAlloc_v2(&a, kBytes));
  CU(cuMemsetD8Async(a, 7, kBytes, stream));
  CU(cuMemFree_v2(a));
  stream.finish();
}

void freed_twice() {
  const Device device;
  uint64_t a = 0;
  CU(cuMemAlloc_v2(&a, kBytes));
  CU(cuMemFree_v2(a));
  cuda().cuMemFree_v2(a);
}

void used_after_free() {
  const Device device;
  const Stream stream;
  uint64_t a = 0;
  CU(cuMemAlloc_v2(&a, kBytes));
  CU(cuMemFree_v2(a));
  CU(cuMemsetD8Async(a, 7, kBytes, stream));
  stream.finish();
}

void host_reads_device_memory() {
  const Device device;
  const Buffer a(kBytes);
  std::printf("%d\n", *static_cast<volatile char*>(a.pointer()));
}

void host_reads_pinned_memory_early() {
  const Device device;
  const Stream stream;
  const Buffer a(kBytes);
  const Pinned host(kBytes);
  CU(cuMemsetD8Async(a, 7, kBytes, stream));
  CU(cuMemcpyDtoHAsync_v2(host.get(), a, kBytes, stream));
  host_access(host.get(), kBytes, false);
  stream.finish();
}

void host_writes_pinned_memory_early() {
  const Device device;
  const Stream stream;
  const Buffer a(kBytes);
  const Pinned host(kBytes);
  CU(cuMemcpyHtoDAsync_v2(a, host.get(), kBytes, stream));
  host_access(host.get(), kBytes, true);
  stream.finish();
}

void pinned_memory_freed_early() {
  const Device device;
  const Stream stream;
  const Buffer a(kBytes);
  void* host = nullptr;
  CU(cuMemHostAlloc(&host, kBytes, 0));
  CU(cuMemcpyHtoDAsync_v2(a, host, kBytes, stream));
  CU(cuMemFreeHost(host));
  stream.finish();
}

void pinned_memory_after_a_wait() {
  const Device device;
  const Stream stream;
  const Buffer a(kBytes);
  const Pinned host(kBytes);
  CU(cuMemsetD8Async(a, 7, kBytes, stream));
  CU(cuMemcpyDtoHAsync_v2(host.get(), a, kBytes, stream));
  const Event done;
  CU(cuEventRecord(done, stream));
  while (cuda().cuEventQuery(done) == cu::kNotReady) std::this_thread::yield();
  host_access(host.get(), kBytes, false);
  for (size_t i = 0; i < kBytes; ++i) EXPECT(host.get()[i] == 7);
}

void event_never_recorded() {
  const Device device;
  const Stream stream;
  const Event event;
  CU(cuStreamWaitEvent(stream, event, 0));
}

void event_never_recorded_but_queried() {
  const Device device;
  const Event event;
  cuda().cuEventQuery(event);
}

// The event goes back to a pool, and is recorded for something else before the wait.
void event_recorded_again_too_early() {
  const Device device;
  const Stream producer, other, consumer;
  const Buffer a(kBytes), b(kBytes);
  const Event event;
  CU(cuMemsetD8Async(a, 7, kBytes, producer));
  CU(cuEventRecord(event, producer));
  CU(cuEventRecord(event, other));
  CU(cuStreamWaitEvent(consumer, event, 0));
  CU(cuMemcpyDtoDAsync_v2(b, a, kBytes, consumer));
  producer.finish();
  consumer.finish();
}

// Only what was on the stream at the record is waited for.
void event_recorded_too_early() {
  const Device device;
  const Stream producer, consumer;
  const Buffer a(kBytes), b(kBytes);
  const Event event;
  CU(cuEventRecord(event, producer));
  CU(cuMemsetD8Async(a, 7, kBytes, producer));
  CU(cuStreamWaitEvent(consumer, event, 0));
  CU(cuMemcpyDtoDAsync_v2(b, a, kBytes, consumer));
  producer.finish();
  consumer.finish();
}

void event_recorded_again_after_the_wait() {
  const Device device;
  const Stream producer, consumer;
  const Buffer a(kBytes), b(kBytes);
  const Event event;
  CU(cuMemsetD8Async(a, 7, kBytes, producer));
  CU(cuEventRecord(event, producer));
  CU(cuStreamWaitEvent(consumer, event, 0));
  CU(cuEventRecord(event, producer));
  CU(cuMemcpyDtoDAsync_v2(b, a, kBytes, consumer));
  consumer.finish();
}

void event_used_after_destroy() {
  const Device device;
  const Stream stream;
  void* event = nullptr;
  CU(cuEventCreate(&event, 0));
  CU(cuEventDestroy_v2(event));
  cuda().cuEventRecord(event, stream);
}

void stream_used_after_destroy() {
  const Device device;
  const Buffer a(kBytes);
  void* stream = nullptr;
  CU(cuStreamCreateWithPriority(&stream, 1, 0));
  CU(cuStreamDestroy_v2(stream));
  cuda().cuMemsetD8Async(a, 7, kBytes, stream);
}

void stream_of_another_gpu() {
  const Device device;
  const Stream stream;
  const Buffer a(kBytes);
  const Device other(1);
  cuda().cuMemsetD8Async(a, 7, kBytes, stream);
}

void event_of_another_gpu() {
  const Device device;
  const Event event;
  const Device other(1);
  const Stream stream;
  cuda().cuEventRecord(event, stream);
}

void wait_for_an_event_of_another_gpu() {
  const Device device;
  const Stream stream;
  const Buffer a(kBytes), b(kBytes);
  CU(cuMemsetD8Async(a, 7, kBytes, stream));
  const Event event;
  CU(cuEventRecord(event, stream));
  {
    const Device other(1);
    const Stream remote;
    const Buffer c(kBytes);
    CU(cuStreamWaitEvent(remote, event, 0));
    CU(cuMemcpyDtoDAsync_v2(c, a, kBytes, remote));
    remote.finish();
  }
}

void context_released_too_often() {
  { const Device device; }
  cuda().cuDevicePrimaryCtxRelease_v2(0);
}

void launch_into_a_capture() {
  const Device device;
  const Stream stream;
  const Event event;
  CU(cuStreamBeginCapture_v2(stream, 0));
  cuda().cuEventRecord(event, stream);
}

void capture_that_is_left_alone() {
  const Device device;
  const Stream stream;
  int status = 0;
  CU(cuStreamBeginCapture_v2(stream, 0));
  CU(cuStreamIsCapturing(stream, &status));
  EXPECT(status == 1);
  void* graph = nullptr;
  CU(cuStreamEndCapture(stream, &graph));
  CU(cuStreamIsCapturing(stream, &status));
  EXPECT(status == 0);
}

// Streams without the flag NON_BLOCKING are ordered with the default stream, others are not.
void default_stream_orders_blocking_streams() {
  const Device device;
  const Stream stream(0);
  const Buffer a(kBytes), b(kBytes), c(kBytes);
  CU(cuMemsetD8Async(a, 7, kBytes, stream));
  CU(cuMemcpyDtoDAsync_v2(b, a, kBytes, nullptr));
  CU(cuMemcpyDtoDAsync_v2(c, b, kBytes, stream));
  for (unsigned char value : read<unsigned char>(c, kBytes, stream)) EXPECT(value == 7);
}

void default_stream_does_not_order_others() {
  const Device device;
  const Stream stream;
  const Buffer a(kBytes), b(kBytes);
  CU(cuMemsetD8Async(a, 7, kBytes, stream));
  CU(cuMemcpyDtoDAsync_v2(b, a, kBytes, nullptr));
  stream.finish();
  CU(cuStreamSynchronize(nullptr));
}

void copy_beyond_the_end() {
  const Device device;
  const Stream stream;
  const Buffer a(kBytes);
  CU(cuMemsetD8Async(a + 1, 7, kBytes, stream));
  cuda().cuStreamSynchronize(stream);
}

void leaked_memory() {
  const Device device;
  uint64_t a = 0;
  CU(cuMemAlloc_v2(&a, kBytes));
}
void leaked_pinned_memory() {
  const Device device;
  void* a = nullptr;
  CU(cuMemHostAlloc(&a, kBytes, 0));
}
void leaked_stream() {
  const Device device;
  void* stream = nullptr;
  CU(cuStreamCreateWithPriority(&stream, 1, 0));
}
void leaked_event() {
  const Device device;
  void* event = nullptr;
  CU(cuEventCreate(&event, 0));
}
void leaked_context() {
  void* context = nullptr;
  CU(cuInit(0));
  CU(cuDevicePrimaryCtxRetain(&context, 0));
}

// A child of a process that uses CUDA must not use it.
void forked_child() {
  const Device device;
  const pid_t child = ::fork();
  if (child == 0) {
    int count = 0;
    std::_Exit(cuda().cuDeviceGetCount(&count) == cu::kNotInitialized && cuda().cuInit(0) == cu::kNotInitialized ? 0
                                                                                                                 : 1);
  }
  int status = 0;
  EXPECT(::waitpid(child, &status, 0) == child && status == 0);
}

void memory_runs_out() {
  const Device device;
  size_t free = 0, total = 0;
  CU(cuMemGetInfo_v2(&free, &total));
  EXPECT(free == total);
  uint64_t a = 0;
  EXPECT_CODE(cu::kOutOfMemory, cuda().cuMemAlloc_v2(&a, total + 1));
  const Buffer b(total / 2 + 1);
  EXPECT_CODE(cu::kOutOfMemory, cuda().cuMemAlloc_v2(&a, total / 2));
}

void counts() {
  const Device device;
  const Stream one, two;
  const Buffer a(kBytes);
  const auto get =
      reinterpret_cast<void (*)(standin::Counts*, uint64_t)>(look_up(cuda().library, "hvd_standin_counts"));
  const auto reset = reinterpret_cast<void (*)()>(look_up(cuda().library, "hvd_standin_reset_counts"));
  reset();
  CU(cuMemsetD8Async(a, 7, kBytes, one));
  order(one, two);
  CU(cuMemsetD8Async(a, 7, kBytes, two));
  two.finish();
  one.finish();
  standin::Counts counted{};
  get(&counted, sizeof counted);
  EXPECT(counted.memsets == 2 && counted.event_records == 1 && counted.stream_waits == 1 && counted.host_syncs == 2);
  EXPECT(counted.kernels == 0 && counted.device_allocations == 0 && counted.event_creates == 1);
}

}  // namespace

std::vector<Program> stream_programs() {
  return {
      {"ordered_by_events", 1, "", ordered_by_events},
      {"missing_wait_for_input", 1, kUnordered, missing_wait_for_input},
      {"missing_wait_for_reader", 1, kUnordered, missing_wait_for_reader},
      {"overlap_of_some_bytes", 1, kUnordered, overlap_of_some_bytes},
      {"neighbours_do_not_conflict", 1, "", neighbours_do_not_conflict},
      {"freed_early", 1, kUnordered, freed_early},
      {"freed_twice", 1, "not the begin of live memory", freed_twice},
      {"used_after_free", 1, "freed memory is used", used_after_free},
      {"host_reads_device_memory", 1, "the host accessed device memory", host_reads_device_memory},
      {"host_reads_pinned_memory_early", 1, kUnordered, host_reads_pinned_memory_early},
      {"host_writes_pinned_memory_early", 1, kUnordered, host_writes_pinned_memory_early},
      {"pinned_memory_freed_early", 1, kUnordered, pinned_memory_freed_early},
      {"pinned_memory_after_a_wait", 1, "", pinned_memory_after_a_wait},
      {"event_never_recorded", 1, "was never recorded", event_never_recorded},
      {"event_never_recorded_but_queried", 1, "was never recorded", event_never_recorded_but_queried},
      {"event_recorded_again_too_early", 1, kUnordered, event_recorded_again_too_early},
      {"event_recorded_too_early", 1, kUnordered, event_recorded_too_early},
      {"event_recorded_again_after_the_wait", 1, "", event_recorded_again_after_the_wait},
      {"event_used_after_destroy", 1, "used after cuEventDestroy", event_used_after_destroy},
      {"stream_used_after_destroy", 1, "used after cuStreamDestroy", stream_used_after_destroy},
      {"stream_of_another_gpu", 1, "the stream belongs to GPU 0, the current context to GPU 1", stream_of_another_gpu},
      {"event_of_another_gpu", 1, "belongs to GPU 0, the stream to GPU 1", event_of_another_gpu},
      {"wait_for_an_event_of_another_gpu", 1, "", wait_for_an_event_of_another_gpu},
      {"context_released_too_often", 1, "released more often than retained", context_released_too_often},
      {"launch_into_a_capture", 1, "is being captured", launch_into_a_capture},
      {"capture_that_is_left_alone", 1, "", capture_that_is_left_alone},
      {"default_stream_orders_blocking_streams", 1, "", default_stream_orders_blocking_streams},
      {"default_stream_does_not_order_others", 1, kUnordered, default_stream_does_not_order_others},
      {"copy_beyond_the_end", 1, "outside every allocation", copy_beyond_the_end},
      {"leaked_memory", 1, "still alive at exit", leaked_memory},
      {"leaked_pinned_memory", 1, "still alive at exit", leaked_pinned_memory},
      {"leaked_stream", 1, "still alive at exit", leaked_stream},
      {"leaked_event", 1, "still alive at exit", leaked_event},
      {"leaked_context", 1, "references to the context of GPU 0", leaked_context},
      {"forked_child", 1, "", forked_child},
      {"memory_runs_out", 1, "", memory_runs_out},
      {"counts", 1, "", counts},
  };
}
