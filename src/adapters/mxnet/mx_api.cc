#include "adapters/mxnet/mx_api.h"

#include <dlfcn.h>

namespace hvd::mxnet {
namespace {

constexpr int kOldest = 10900, kTooNew = 20000;  // 1.9; 2.0 calls engine functions with one more argument

MxApi table;

class Loader {
 public:
  explicit Loader(void* library) : library_(library) {}
  template <class Function>
  void operator()(Function*& function, const char* name) {
    function = reinterpret_cast<Function*>(dlsym(library_, name));
    if (function == nullptr) missing_ += missing_.empty() ? name : std::string(", ") + name;
  }
  std::string missing() && { return std::move(missing_); }

 private:
  void* library_;
  std::string missing_;
};

}  // namespace

const MxApi& api() { return table; }

std::string load_api(const char* path) {
  // never closed: its functions are called until the process exits
  void* library = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) return std::string("MXNet is not loaded from ") + path;
  Loader load(library);
#define HVD_LOAD(name) load(table.name, "MX" #name)
  HVD_LOAD(GetVersion);
  HVD_LOAD(GetLastError);
  HVD_LOAD(ShallowCopyNDArray);
  HVD_LOAD(NDArrayFree);
  HVD_LOAD(NDArrayToDLPack);
  HVD_LOAD(NDArrayCallDLPackDeleter);
  HVD_LOAD(NDArrayFromDLPackEx);
  HVD_LOAD(EnginePushAsyncND);
#undef HVD_LOAD
  if (std::string missing = std::move(load).missing(); !missing.empty()) return "this MXNet has no " + missing;
  int version = 0;
  table.GetVersion(&version);
  if (version < kOldest || version >= kTooNew) return "only MXNet 1.9 can be used";
  return {};
}

}  // namespace hvd::mxnet
