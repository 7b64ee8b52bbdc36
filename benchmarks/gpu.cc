// What a step of GPU tensors asks of the driver and of NCCL, and what it costs on the host: with the stand-in in its
// mode that only counts (HVD_STANDIN_MODE=count), and beside it the same step on host memory. gpu.py runs it, in a
// world of one rank, and prints the table.
//
//     bench_gpu STEPS TENSORS...      a line for each number of tensors, and for the gradients of ResNet-50
#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <string>
#include <vector>

#include "core/counts.h"
#include "horovod/horovod.h"

// ---- heap allocations of all threads, while they are counted

extern "C" {
void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t count, size_t bytes);
void* __libc_realloc(void* memory, size_t bytes);
}

namespace {

std::atomic<bool> counting{false};
std::atomic<uint64_t> allocations{0};

void note_allocation() {
  if (counting.load(std::memory_order_relaxed)) allocations.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

extern "C" {
void* malloc(size_t bytes) { return note_allocation(), __libc_malloc(bytes); }
void* calloc(size_t count, size_t bytes) { return note_allocation(), __libc_calloc(count, bytes); }
void* realloc(void* memory, size_t bytes) { return note_allocation(), __libc_realloc(memory, bytes); }
}

namespace {

using Seconds = std::chrono::duration<double>;
double now() { return Seconds(std::chrono::steady_clock::now().time_since_epoch()).count(); }

[[noreturn]] void fail(const std::string& text) {
  std::fprintf(stderr, "%s\n", text.c_str());
  std::exit(1);
}
void expect(hvd_code code) {
  if (code != HVD_OK) fail(hvd_last_error());
}

template <class Function>
Function* find(const char* name) {
  void* function = dlsym(RTLD_DEFAULT, name);
  if (function == nullptr) fail(std::string("no ") + name + ": this program needs the stand-in for CUDA");
  return reinterpret_cast<Function*>(function);
}

// The driver, as a program with a framework uses it: memory, a stream, and a current context.
struct Driver {
  int (*allocate)(uint64_t*, size_t);
  int (*memory_info)(size_t*, size_t*);
  void (*counts)(standin::Counts*, uint64_t);
  void (*reset)();
  void* stream = nullptr;

  Driver() {
    void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    if (library == nullptr) fail(dlerror());
    counts = find<void(standin::Counts*, uint64_t)>("hvd_standin_counts");
    reset = find<void()>("hvd_standin_reset_counts");
    allocate = find<int(uint64_t*, size_t)>("cuMemAlloc_v2");
    memory_info = find<int(size_t*, size_t*)>("cuMemGetInfo_v2");
    int device = 0;
    void* context = nullptr;
    if (find<int(unsigned)>("cuInit")(0) != 0 || find<int(int*, int)>("cuDeviceGet")(&device, 0) != 0 ||
        find<int(void**, int)>("cuDevicePrimaryCtxRetain")(&context, device) != 0 ||
        find<int(void*)>("cuCtxPushCurrent_v2")(context) != 0 ||
        find<int(void**, unsigned, int)>("cuStreamCreateWithPriority")(&stream, 1, 0) != 0)
      fail("the stand-in cannot be used");
  }

  size_t used() const {
    size_t available = 0, total = 0;
    if (memory_info(&available, &total) != 0) fail("cuMemGetInfo");
    return total - available;
  }
};

// Tensors that are reduced in every step, in place; submitted one by one with one call.
struct Tensors {
  std::deque<std::string> names;
  std::deque<int64_t> shapes;
  std::vector<std::vector<float>> host;
  std::vector<hvd_request> requests;
  std::vector<hvd_handle> handles;

  void add(const std::string& name, int64_t count, int32_t device, void* data, void* stream) {
    names.push_back(name);
    shapes.push_back(count);
    hvd_request request{};
    request.struct_size = sizeof request;
    request.kind = HVD_ALLREDUCE;
    request.reduce_op = HVD_SUM;
    request.name = names.back().c_str();
    request.prescale_factor = request.postscale_factor = 1.0;
    request.input = {.struct_size = sizeof(hvd_tensor),
                     .dtype = HVD_FLOAT32,
                     .device = device,
                     .ndim = 1,
                     .shape = &shapes.back(),
                     .data = data,
                     .stream = stream,
                     .ready_event = nullptr};
    request.output = request.input;
    requests.push_back(request);
    handles.push_back(0);
  }

  Tensors(const std::vector<int64_t>& counts, const std::string& name, Driver* driver) {
    for (size_t i = 0; i < counts.size(); i++) {
      std::string own = name + "." + std::to_string(i);
      if (driver == nullptr) {
        host.emplace_back(static_cast<size_t>(counts[i]));
        add(own, counts[i], HVD_HOST_DEVICE, host.back().data(), nullptr);
        continue;
      }
      uint64_t memory = 0;
      if (driver->allocate(&memory, static_cast<size_t>(counts[i]) * 4) != 0) fail("cuMemAlloc");
      add(own, counts[i], 0, reinterpret_cast<void*>(memory), driver->stream);
    }
  }

  // How long the submission took. All requests are one group: all are in one plan.
  double step() {
    double start = now();
    expect(hvd_submit(requests.data(), static_cast<int32_t>(requests.size()), nullptr, handles.data()));
    double submitted = now() - start;
    expect(hvd_wait(handles[0], -1));
    hvd_release(handles[0]);
    return submitted;
  }
};

struct Times {
  double step = 0, submit = 0, heap = 0;  // medians in us; allocations per step
};

Times measure(Tensors& tensors, int steps) {
  for (int i = 0; i < 20; i++) tensors.step();
  std::vector<double> whole, submit;
  whole.reserve(static_cast<size_t>(steps));
  submit.reserve(static_cast<size_t>(steps));
  allocations = 0;
  counting = true;
  for (int i = 0; i < steps; i++) {
    double start = now();
    submit.push_back(tensors.step());
    whole.push_back(now() - start);
  }
  counting = false;
  auto median = [](std::vector<double>& values) {
    std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(values.size() / 2), values.end());
    return values[values.size() / 2] * 1e6;
  };
  return {median(whole), median(submit), static_cast<double>(allocations.load()) / steps};
}

void print(const char* label, const std::vector<int64_t>& counts, int steps, Driver& driver) {
  Tensors on_host(counts, std::string(label) + ".host", nullptr);
  Times host = measure(on_host, steps);
  static size_t all_own = 0;  // of this and the former cases
  size_t before = driver.used();
  Tensors on_device(counts, label, &driver);
  size_t own = driver.used() - before;
  all_own += own;
  for (int i = 0; i < 20; i++) on_device.step();
  size_t held = driver.used() - all_own;
  driver.reset();
  Times device = measure(on_device, steps);
  standin::Counts c{};
  driver.counts(&c, sizeof c);
  double all = steps + 20;
  auto each = [&](uint64_t count) { return static_cast<double>(count) / all; };
  std::printf(
      "{\"case\": \"%s\", \"tensors\": %zu, \"kernels\": %g, \"nccl_launches\": %g, \"copies\": %g, \"waits\": %g, "
      "\"event_records\": %g, \"event_creates\": %g, \"host_syncs\": %g, \"device_allocations\": %g, "
      "\"pinned_allocations\": %g, \"heap\": %g, \"heap_host\": %g, \"step_us\": %.2f, \"step_host_us\": %.2f, "
      "\"submit_us\": %.2f, \"submit_host_us\": %.2f, \"bytes\": %zu, \"held\": %zu}\n",
      label, counts.size(), each(c.kernels), each(c.nccl_launches), each(c.copies), each(c.stream_waits),
      each(c.event_records), each(c.event_creates), each(c.host_syncs), each(c.device_allocations),
      each(c.pinned_allocations), device.heap, host.heap, device.step, host.step, device.submit, host.submit, own,
      held);
  std::fflush(stdout);
}

// The parameters of ResNet-50: convolutions with their two vectors of batch normalization, and the last layer.
std::vector<int64_t> resnet50() {
  std::vector<int64_t> counts;
  auto convolution = [&](int64_t in, int64_t out, int64_t kernel) {
    counts.push_back(in * out * kernel * kernel);
    counts.insert(counts.end(), {out, out});
  };
  convolution(3, 64, 7);
  int64_t in = 64;
  for (auto [width, blocks] : {std::pair<int64_t, int>{64, 3}, {128, 4}, {256, 6}, {512, 3}}) {
    for (int block = 0; block < blocks; block++) {
      convolution(in, width, 1);
      convolution(width, width, 3);
      convolution(width, 4 * width, 1);
      if (block == 0) convolution(in, 4 * width, 1);
      in = 4 * width;
    }
  }
  counts.insert(counts.end(), {in * 1000, 1000});
  return counts;
}

}  // namespace

int main(int argc, char** argv) {
  int steps = argc > 1 ? std::atoi(argv[1]) : 200;
  for (const char* name : {"HOROVOD_SIZE", "HOROVOD_LOCAL_SIZE"}) setenv(name, "1", 1);
  for (const char* name : {"HOROVOD_RANK", "HOROVOD_LOCAL_RANK"}) setenv(name, "0", 1);
  Driver driver;
  expect(hvd_init(0, nullptr, nullptr));
  for (int i = 2; i < argc; i++) {
    std::string label = std::string(argv[i]) + " tensors";
    print(label.c_str(), std::vector<int64_t>(static_cast<size_t>(std::atoi(argv[i])), 1000), steps, driver);
  }
  print("gradients of ResNet-50", resnet50(), std::min(steps, 50), driver);
  expect(hvd_shutdown());
  std::fflush(stdout);
  std::_Exit(0);  // the driver's memory is left to the end of the process
}
