#include "engine/carried_allreduces.h"

#include <utility>

#include "backends/cpu/cpu_backend.h"
#include "engine/outputs.h"

namespace hvd {
namespace {

// Larger ones are faster by a plan of their own: their copies into messages cost more than the hops that are saved.
constexpr size_t kLimitOnHost = 1 << 10;
constexpr size_t kLimitBetweenHosts = 64 << 10;

}  // namespace

// A timeout ends operations that were promised (carried.h), a cycle time asks for fusion, the tuner measures plans, and
// other backends than the built-in one see every plan.
bool CarriedAllreduces::is_possible(const World& world, const Config& config, bool polled) {
  return !polled && world.size == kRanksThatCarry && config.collective_timeout <= 0 &&
         config.cycle_time_ms.value_or(0) <= 0 && !config.autotune && config.backends.empty();
}

CarriedAllreduces::CarriedAllreduces(const World& world, Transport& transport, OperationTable& operations,
                                     const Recorder& recorder, std::function<void(Task&)> on_done,
                                     observe::Writer* observer)
    : rank_(world.rank),
      limit_(world.host_of.empty() ? kLimitOnHost : kLimitBetweenHosts),
      transport_(transport),
      operations_(operations),
      recorder_(recorder),
      on_done_(std::move(on_done)),
      observer_(observer) {}

bool CarriedAllreduces::may_carry(const Operation& operation) const {
  return can_be_carried(operation.request) && operation.input.bytes() <= limit_ && !recorder_.is_watching();
}

void CarriedAllreduces::on_carried(const Request& request, ByteView theirs) {
  Task::Place* place = operations_.find(request);
  if (place == nullptr) return;  // the engine has ended meanwhile
  if (observer_ != nullptr) observer_->on_carried();
  Status status = allocate_output(*place->operation);
  if (status.ok()) {
    status = combine(*place->operation, theirs, rank_);
  } else {
    transport_.abort(status);
  }
  operations_.finish({&place, 1}, status, done_);
  for (const TaskRef& task : done_) on_done_(*task);
  done_.clear();
}

}  // namespace hvd
