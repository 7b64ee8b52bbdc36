#include <dlfcn.h>
#include <fmt/core.h>
#include <horovod/horovod.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "launcher/doctor/probe.h"

namespace hvd::launcher {
namespace {

constexpr size_t kElements = (1 << 20) / sizeof(float);
constexpr int kRounds = 8;  // the first one opens connections and negotiates the plan

Status missing(const char* name) {
  return {Code::precondition, fmt::format("it has no {}: it belongs to another version", name)};
}

}  // namespace

template <class Function>
Function* Library::find(const char* name) const {
  return reinterpret_cast<Function*>(::dlsym(handle_, name));
}

Result<Library> Library::load(const std::string& path) {
  void* handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return Status(Code::unknown, ::dlerror());
  Library library(handle);
  auto* abi_version = library.find<decltype(hvd_abi_version)>("hvd_abi_version");
  auto* version = library.find<decltype(hvd_version)>("hvd_version");
  if (abi_version == nullptr || version == nullptr) return missing("hvd_version");
  if (abi_version() >> 16 != HVD_ABI_VERSION >> 16)
    return Status(Code::precondition, fmt::format("its interface is version {}, and horovodrun needs {}",
                                                  abi_version() >> 16, HVD_ABI_VERSION >> 16));
  library.version_ = version();
  return library;
}

Result<double> Library::time_allreduce(TimePoint deadline) {
  auto* submit = find<decltype(hvd_submit)>("hvd_submit");
  auto* wait = find<decltype(hvd_wait)>("hvd_wait");
  auto* release = find<decltype(hvd_release)>("hvd_release");
  auto* size = find<decltype(hvd_size)>("hvd_size");
  auto* last_error = find<decltype(hvd_last_error)>("hvd_last_error");
  if (!submit || !wait || !release || !size || !last_error) return missing("hvd_submit");
  input_.assign(kElements, 1.0F);
  output_.assign(kElements, 0.0F);
  int64_t shape = kElements;
  hvd_tensor tensor{.struct_size = sizeof(hvd_tensor),
                    .dtype = HVD_FLOAT32,
                    .device = HVD_HOST_DEVICE,
                    .ndim = 1,
                    .shape = &shape,
                    .data = input_.data(),
                    .stream = nullptr,
                    .ready_event = nullptr};
  hvd_request request{};
  request.struct_size = sizeof request;
  request.kind = HVD_ALLREDUCE;
  request.reduce_op = HVD_SUM;
  request.name = "doctor";
  request.prescale_factor = request.postscale_factor = 1;
  request.input = request.output = tensor;
  request.output.data = output_.data();
  hvd_submit_options options{};
  options.struct_size = sizeof options;
  options.wait_follows = 1;
  double fastest = 0;
  for (int round = 0; round < kRounds; round++) {
    TimePoint began = Clock::now();
    hvd_handle handle = 0;
    hvd_code code = submit(&request, 1, &options, &handle);
    if (code == HVD_OK) code = wait(handle, std::max(0.0, seconds_of(deadline - began)));
    if (code == HVD_TIMED_OUT) return Status(Code::timed_out, "the allreduce did not end in time");
    if (code != HVD_OK) return Status(Code::unknown, last_error());
    double time = seconds_of(Clock::now() - began);
    release(handle);
    auto expected = static_cast<float>(size());
    auto wrong = std::find_if(output_.begin(), output_.end(), [&](float sum) { return sum != expected; });
    if (wrong != output_.end())
      return Status(Code::unknown,
                    fmt::format("the sum of {} ones is {} at element {}", size(), *wrong, wrong - output_.begin()));
    fastest = round == 0 ? time : std::min(fastest, time);
  }
  return fastest;
}

Trial Library::try_allreduce(TimePoint deadline) {
  auto* init = find<decltype(hvd_init)>("hvd_init");
  auto* shutdown = find<decltype(hvd_shutdown)>("hvd_shutdown");
  auto* last_error = find<decltype(hvd_last_error)>("hvd_last_error");
  if (!init || !shutdown || !last_error) return {.error = std::string(missing("hvd_init").message())};
  double left = std::max(1.0, seconds_of(deadline - Clock::now()));
  ::setenv("HOROVOD_START_TIMEOUT", fmt::format("{:.3f}", left).c_str(), 1);
  if (init(0, nullptr, nullptr) != HVD_OK) return {.error = last_error()};
  auto time = time_allreduce(deadline);
  if (!time.ok()) return {.error = std::string(time.status().message())};  // no shutdown: other ranks may hang
  shutdown();
  return {.seconds = *time};
}

}  // namespace hvd::launcher
