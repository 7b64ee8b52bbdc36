// This rank's side of carried allreduces (negotiation/carried.h): which operations may be carried, and the reduction
// once the other rank's data is here. Thread rule: the thread that drives; may_carry() any thread.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "engine/operation_table.h"
#include "engine/recorder.h"
#include "engine/task.h"
#include "model/config.h"
#include "model/world.h"
#include "negotiation/carried.h"
#include "transport/transport.h"

namespace hvd {

class CarriedAllreduces final : public CarriedListener {
 public:
  // Whether a world can have them. `polled`: another backend than the built-in one takes plans on host memory.
  static bool is_possible(const World& world, const Config& config, bool polled);
  // `on_done` is called for every task that is done.
  CarriedAllreduces(const World& world, Transport& transport, OperationTable& operations, const Recorder& recorder,
                    std::function<void(Task&)> on_done, observe::Writer* observer = nullptr);

  bool may_carry(const Operation& operation) const;
  void on_carried(const Request& request, ByteView theirs) override;

 private:
  const int32_t rank_;
  const size_t limit_;  // bytes
  Transport& transport_;
  OperationTable& operations_;
  const Recorder& recorder_;
  std::function<void(Task&)> on_done_;
  observe::Writer* const observer_;
  std::vector<TaskRef> done_;  // by on_carried(); kept so that it need not allocate
};

}  // namespace hvd
