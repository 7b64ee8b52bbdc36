// What follows in a static job: all np workers start at once, each on the slot of its rank, and the first failure ends
// the job. If a rank is about to end that other ranks name as the cause, or that reported its own failure, it gets a
// moment to do so: if stopped now, it would end by our signal. It may have been named before the first failure; a
// second rank that fails on its own changes nothing.
#include <utility>

#include "base/joined.h"
#include "elastic/driver.h"

namespace hvd::elastic {

void Driver::settle_static() {
  if (generation_ == Generation{0} && hosts_.count_slots() >= settings_.np) start_all();
  if (failing_since_ && (awaited_.empty() || is_due(after(*failing_since_, settings_.cause_patience))))
    return fail(joined(failures_, "; "));
  if (generation_ == Generation{0} || !workers_.empty()) return;
  phase_ = Phase::finished;
  act(Finish{0});
}

// The slots of the first host, then those of the second, and so on: place() gives them their ranks in that order.
void Driver::start_all() {
  for (const HostSlots& host : hosts_.hosts())
    for (int slot = 0; slot < host.slots && workers_.size() < static_cast<size_t>(settings_.np); slot++)
      workers_.push_back({.id = WorkerId{last_id_++}, .host = host.name, .slot = slot, .started = now_, .since = now_});
  std::vector<const Worker*> members;
  for (const Worker& worker : workers_) members.push_back(&worker);
  assign(std::move(members));
  for (const Worker& worker : workers_) act(StartWorker{worker.id, worker.host, worker.slot});
}

void Driver::note_failure(std::string failure) {
  if (!failing_since_) failing_since_ = now_;
  failures_.push_back(std::move(failure));
}

void Driver::stop_all() {
  act(StopAll{});
  for (Worker& worker : workers_) {
    worker.state = WorkerState::stopping;
    worker.since = now_;
  }
}

}  // namespace hvd::elastic
