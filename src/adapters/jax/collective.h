// One collective on any number of arrays: everything is submitted before anything is waited for. So the engine can
// fuse, and ranks whose XLA runs calls in different orders need only agree on the contents of one call.
//
// Thread rule: one thread at a time; `finish` may run in another thread than `start`.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "adapters/jax/call.h"

namespace hvd::jax {

class Collective {
 public:
  // The buffers must stay valid until `finish` has returned, or until the destructor.
  Collective(Call call, std::vector<hvd_tensor> inputs, std::vector<hvd_tensor> outputs);
  Collective(const Collective&) = delete;
  Collective& operator=(const Collective&) = delete;
  ~Collective();  // waits for operations in flight

  void start(bool wait_follows);  // CallError: a request was rejected; earlier ones continue until the destructor
  void finish();                  // CallError: it failed, or the size of a result is not the compiled one
  // On a GPU: returns when all is launched, and makes `stream` wait for it. The arrays must stay valid until then.
  void finish_on_stream(void* stream);

 private:
  // A result whose size depends on other ranks.
  struct Place {
    Collective* owner;
    size_t first;                                     // tensor of the group
    std::vector<std::string> problems;                // results of unexpected size
    std::vector<std::unique_ptr<std::byte[]>> spare;  // memory for those: the exchange of the other ranks must not fail
  };

  bool is_on_gpu() const { return !inputs_.empty() && inputs_.front().device != HVD_HOST_DEVICE; }
  bool engine_asks_for_memory() const { return call_.kind != HVD_ALLREDUCE && call_.kind != HVD_BROADCAST; }
  hvd_request request(size_t index) const;
  void* memory_for(Place& place, size_t index, int32_t ndim, const int64_t* shape);
  [[noreturn]] void fail(hvd_code code) const;
  void check_sizes() const;
  std::vector<std::string> names_of_handle(size_t index) const;
  void wait_and_release() noexcept;

  static void* on_allocate(void* context, int32_t index, int32_t dtype, int32_t ndim, const int64_t* shape);

  Call call_;
  std::vector<hvd_tensor> inputs_, outputs_;
  std::vector<Place> places_;  // one per group
  std::vector<hvd_handle> handles_;
};

}  // namespace hvd::jax
