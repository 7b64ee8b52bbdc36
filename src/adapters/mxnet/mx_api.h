// The part of MXNet's C API that the adapter needs: our own declarations, looked up at run time in the library that
// Python has loaded, so building this needs no MXNet. Made for MXNet 1.9; load_api() rejects other versions.
//
// Thread rule: load_api() runs once, while the Python package is imported; afterwards the table is only read.
#pragma once

#include <cstdint>
#include <string>

namespace hvd::mxnet {

using NDArrayHandle = void*;

// DLPack 0.2, which arrays use to share memory.
struct DLTensor {
  void* data;
  int32_t device_type, device_id;
  int32_t ndim;
  uint8_t type_code, type_bits;
  uint16_t type_lanes;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
};

struct DLManagedTensor {
  DLTensor tensor;
  void* manager;
  void (*deleter)(DLManagedTensor*);
};

struct Context {
  int32_t device_type, device_id;
};
constexpr Context kCpu{1, 0};

// The `on_complete` argument of an engine function: valid until the function returns, so it is copied. `error` is a
// dmlc::Error, a std::runtime_error without members of its own; MXNet copies it before the callback returns. NULL:
// success.
struct OnComplete {
  void (*callback)(void* engine, void* param, const void* error);
  void* engine;
  void* param;
};

enum FnProperty : int32_t { kCpuPrioritized = 3 };  // run by threads that do not compute

using EngineFunction = void (*)(void* run_context, void* on_complete, void* param);
using ParamDeleter = void (*)(void* param);

// Members are named as MXNet's functions, without MX.
struct MxApi {
  int (*GetVersion)(int*);
  const char* (*GetLastError)();
  int (*ShallowCopyNDArray)(NDArrayHandle, NDArrayHandle*);
  int (*NDArrayFree)(NDArrayHandle);
  int (*NDArrayToDLPack)(NDArrayHandle, DLManagedTensor**);
  int (*NDArrayCallDLPackDeleter)(DLManagedTensor*);
  int (*NDArrayFromDLPackEx)(DLManagedTensor*, bool, NDArrayHandle*);
  int (*EnginePushAsyncND)(EngineFunction, void* param, ParamDeleter, const Context*, NDArrayHandle* const_arrays,
                           int const_count, NDArrayHandle* mutable_arrays, int mutable_count, const FnProperty*,
                           int priority, const char* name, bool wait);
};

// The loaded table.
const MxApi& api();
// Fills the table from the library at this path, which is already loaded. Returns an error, or an empty text.
std::string load_api(const char* path);

}  // namespace hvd::mxnet
