// CUDA and NCCL for small test programs, looked up at run time: the real libraries or the stand-in, whichever the
// loader finds. A call that fails ends the program with its name and code.
#pragma once

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "cuda_declarations.h"
#include "nccl_declarations.h"

namespace gpu {

inline void* open_library(const char* name) {
  void* library = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (library != nullptr) return library;
  std::printf("skipped: %s\n", ::dlerror());
  std::exit(77);
}

inline void* look_up(void* library, const char* name) { return ::dlsym(library, name); }

struct Cuda {
#define GPU_FIELD(name, parameters) int(*name) parameters = nullptr;
  STANDIN_CUDA_FUNCTIONS(GPU_FIELD)
#undef GPU_FIELD
  void* library = open_library("libcuda.so.1");
  Cuda() {
#define GPU_LOAD(name, parameters) name = reinterpret_cast<decltype(name)>(look_up(library, #name));
    STANDIN_CUDA_FUNCTIONS(GPU_LOAD)
#undef GPU_LOAD
  }
};

struct Nccl {
#define GPU_FIELD(result, name, parameters) result(*name) parameters = nullptr;
  STANDIN_NCCL_FUNCTIONS_2_18(GPU_FIELD)
  STANDIN_NCCL_FUNCTIONS_2_19(GPU_FIELD)
  STANDIN_NCCL_FUNCTIONS_2_27(GPU_FIELD)
  STANDIN_NCCL_FUNCTIONS_2_28(GPU_FIELD)
#undef GPU_FIELD
  void* library = open_library("libnccl.so.2");
  Nccl() {
#define GPU_LOAD(result, name, parameters) name = reinterpret_cast<decltype(name)>(look_up(library, #name));
    STANDIN_NCCL_FUNCTIONS_2_18(GPU_LOAD)
    STANDIN_NCCL_FUNCTIONS_2_19(GPU_LOAD)
    STANDIN_NCCL_FUNCTIONS_2_27(GPU_LOAD)
    STANDIN_NCCL_FUNCTIONS_2_28(GPU_LOAD)
#undef GPU_LOAD
  }
};

inline const Cuda& cuda() {
  static const Cuda value;
  return value;
}
inline const Nccl& nccl() {
  static const Nccl value;
  return value;
}

inline void expect(bool holds, const char* what, const char* file, int line) {
  if (holds) return;
  std::fprintf(stderr, "%s:%d: not so: %s\n", file, line, what);
  std::_Exit(1);
}
inline void expect_code(int code, int expected, const char* what, const char* file, int line) {
  if (code == expected) return;
  std::fprintf(stderr, "%s:%d: %s returned %d, expected %d\n", file, line, what, code, expected);
  std::_Exit(1);
}

inline int number_from(const char* variable, int fallback) {
  const char* text = std::getenv(variable);
  return text == nullptr ? fallback : std::atoi(text);
}

}  // namespace gpu

#define EXPECT(holds) gpu::expect((holds), #holds, __FILE__, __LINE__)
#define EXPECT_CODE(expected, call) gpu::expect_code((call), (expected), #call, __FILE__, __LINE__)
#define CU(call) gpu::expect_code(gpu::cuda().call, 0, #call, __FILE__, __LINE__)
#define NC(call) gpu::expect_code(gpu::nccl().call, 0, #call, __FILE__, __LINE__)

namespace gpu {

// The primary context of a GPU, current while the object lives.
class Device {
 public:
  explicit Device(int ordinal = 0) : ordinal_(ordinal) {
    CU(cuInit(0));
    void* context = nullptr;
    CU(cuDevicePrimaryCtxRetain(&context, ordinal));
    context_ = context;
    CU(cuCtxPushCurrent_v2(context));
  }
  ~Device() {
    CU(cuCtxPopCurrent_v2(nullptr_ptr()));
    CU(cuDevicePrimaryCtxRelease_v2(ordinal_));
  }
  Device(const Device&) = delete;
  void* context() const { return context_; }

 private:
  static void** nullptr_ptr() {
    static void* ignored = nullptr;
    return &ignored;
  }
  int ordinal_;
  void* context_ = nullptr;
};

class Stream {
 public:
  explicit Stream(unsigned flags = standin::cuda::kStreamNonBlocking) {
    CU(cuStreamCreateWithPriority(&handle_, flags, 0));
  }
  ~Stream() { CU(cuStreamDestroy_v2(handle_)); }
  Stream(const Stream&) = delete;
  operator void*() const { return handle_; }
  void finish() const { CU(cuStreamSynchronize(handle_)); }

 private:
  void* handle_ = nullptr;
};

class Event {
 public:
  explicit Event(unsigned flags = standin::cuda::kEventDisableTiming) { CU(cuEventCreate(&handle_, flags)); }
  ~Event() { CU(cuEventDestroy_v2(handle_)); }
  Event(const Event&) = delete;
  operator void*() const { return handle_; }

 private:
  void* handle_ = nullptr;
};

// One stream waits for what is on another now.
inline void order(void* before, void* after) {
  const Event event;
  CU(cuEventRecord(event, before));
  CU(cuStreamWaitEvent(after, event, 0));
}

class Buffer {
 public:
  explicit Buffer(size_t bytes) : bytes_(bytes) { CU(cuMemAlloc_v2(&address_, bytes)); }
  ~Buffer() { CU(cuMemFree_v2(address_)); }
  Buffer(const Buffer&) = delete;
  operator uint64_t() const { return address_; }
  void* pointer() const { return reinterpret_cast<void*>(address_); }
  size_t bytes() const { return bytes_; }

 private:
  uint64_t address_ = 0;
  size_t bytes_;
};

class Pinned {
 public:
  explicit Pinned(size_t bytes) { CU(cuMemHostAlloc(&block_, bytes, 0)); }
  ~Pinned() { CU(cuMemFreeHost(block_)); }
  Pinned(const Pinned&) = delete;
  char* get() const { return static_cast<char*>(block_); }

 private:
  void* block_ = nullptr;
};

template <typename T>
std::vector<T> read(uint64_t address, size_t count, void* stream) {
  std::vector<T> values(count);
  CU(cuMemcpyDtoHAsync_v2(values.data(), address, count * sizeof(T), stream));
  CU(cuStreamSynchronize(stream));
  return values;
}
template <typename T>
void write(uint64_t address, const std::vector<T>& values, void* stream) {
  CU(cuMemcpyHtoDAsync_v2(address, values.data(), values.size() * sizeof(T), stream));
}

}  // namespace gpu
