// The backends of one world, in order of preference: the loaded ones (HOROVOD_BACKENDS), the one created for this
// world, if any, and the built-in one. Thread rule: the thread that drives.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <vector>

#include "backends/backend.h"
#include "base/status.h"
#include "engine/process_set_table.h"
#include "model/config.h"
#include "model/plan.h"
#include "model/world.h"
#include "transport/transport.h"

namespace hvd {

// Creates the polled backend of one world. It may use its arguments for its whole life.
using MakePolled = std::function<Result<std::unique_ptr<PolledBackend>>(const BackendContext&, Transport&)>;

class BackendList {
 public:
  static Result<std::unique_ptr<BackendList>> create(const World& world, const Config& config, Transport& transport,
                                                     ProcessSetTable& process_sets,
                                                     const MakePolled& make_polled = nullptr);

  Backend* choose(const Plan& plan) const;  // null: no backend accepts it

  // For tensors on accelerators; call once, before the first one. Then any thread may ask for it; null: there is none.
  using MakeDevice = std::function<std::unique_ptr<DeviceBackend>(BackendContext)>;
  void attach_device(const MakeDevice& make);
  DeviceBackend* device() const { return device_.load(std::memory_order_acquire); }
  void give_up_device(const Status& status) {
    if (DeviceBackend* backend = device()) backend->give_up(status);
  }
  bool is_device_idle() const { return device() == nullptr || device()->is_idle(); }

  // Plans of the polled backend: whether there is one; lets its plans progress (true: one was done); fails them.
  bool has_polled() const { return polled_ != nullptr; }
  bool is_busy() const { return polled_ != nullptr && polled_->is_busy(); }
  bool poll() { return is_busy() && polled_->poll(); }
  void give_up(const Status& status) {
    if (is_busy()) polled_->give_up(status);
  }

 private:
  std::vector<std::unique_ptr<Backend>> backends_;
  PolledBackend* polled_ = nullptr;  // one of them; null: none
  BackendContext context_;
  std::unique_ptr<DeviceBackend> owned_device_;
  std::atomic<DeviceBackend*> device_{nullptr};
};

}  // namespace hvd
