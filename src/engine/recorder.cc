#include "engine/recorder.h"

#include <utility>

namespace hvd {
namespace {

bool is_adasum(const Request& request) { return request.reduce_op == ReduceOp::adasum; }

}  // namespace

void Recorder::set_timeline(std::shared_ptr<Timeline> timeline) {
  {
    std::lock_guard lock(mutex_);
    has_timeline_.store(timeline != nullptr, std::memory_order_relaxed);
    timeline_.swap(timeline);
  }
  if (timeline) timeline->close();  // a plan in progress may still use it
}

std::shared_ptr<Timeline> Recorder::timeline() const {
  if (!is_watching()) return nullptr;
  std::lock_guard lock(mutex_);
  return timeline_;
}

// ---- negotiation ----

void Recorder::on_first_request(const Request& request) {
  if (auto timeline = this->timeline()) timeline->negotiate_start(request.name, request.kind, is_adasum(request));
}

void Recorder::on_rank_ready(const Request& request, Rank rank) {
  if (auto timeline = this->timeline()) timeline->negotiate_rank_ready(request.name, index_of(rank));
}

void Recorder::on_agreed(const Request& request) {
  if (auto timeline = this->timeline()) timeline->negotiate_end(request.name);
}

// ---- execution ----

void Recorder::on_plan() {
  if (auto timeline = this->timeline()) timeline->mark_cycle();
}

void Recorder::on_submit(const Request& request) {
  if (auto timeline = this->timeline()) timeline->submit(request.name);
}

void Recorder::on_waited(TimePoint begin) {
  if (auto timeline = this->timeline()) timeline->waited(begin);
}

Recorder::Execution Recorder::start(std::span<Operation* const> operations, std::string_view activity, const Plan& plan,
                                    uint64_t number) const {
  Execution execution;
  execution.timeline_ = timeline();
  if (!execution.timeline_) return execution;
  for (const Operation* operation : operations) {
    const Request& request = operation->request;
    execution.timeline_->start(request.name, request.kind, is_adasum(request),
                               {.plan = number, .is_cached = plan.is_cached});
    if (!activity.empty()) execution.timeline_->activity_start(request.name, activity);
  }
  execution.has_activity_ = !activity.empty();
  return execution;
}

void Recorder::Execution::end(std::span<Task::Place* const> places) {
  auto timeline = std::exchange(timeline_, nullptr);
  if (!timeline) return;
  for (const Task::Place* place : places) {
    const Operation& operation = *place->operation;
    if (has_activity_) timeline->activity_end(operation.request.name);
    if (operation.activities != nullptr) {
      for (const TimedActivity& each : *operation.activities) {
        timeline->activity(operation.request.name, each.name, each.begin, each.end);
      }
    }
    timeline->end(operation.request.name, operation.request.dtype, operation.output.shape);
  }
}

}  // namespace hvd
