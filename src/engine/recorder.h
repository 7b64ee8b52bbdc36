// Records events of tensors in the timeline, if there is one: their negotiation, as seen by the coordinator, and the
// execution of their plans. Thread rule: any thread; the observer is called by the thread that drives.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>

#include "engine/task.h"
#include "engine/timeline.h"
#include "model/plan.h"
#include "negotiation/coordinator.h"

namespace hvd {

class Recorder final : public NegotiationObserver {
 public:
  // Replaces the timeline (null: none). The file of the previous one is complete when this returns.
  void set_timeline(std::shared_ptr<Timeline> timeline);
  std::shared_ptr<Timeline> timeline() const;
  bool is_watching() const override { return has_timeline_.load(std::memory_order_relaxed); }

  void on_first_request(const Request& request) override;
  void on_rank_ready(const Request& request, Rank rank) override;
  void on_agreed(const Request& request) override;
  void on_plan();
  void on_submit(const Request& request);
  void on_waited(TimePoint begin);  // a thread of the user has waited from then until now

  // The execution of one plan. It is recorded in one timeline from start to end, even if that is replaced meanwhile.
  class Execution {
   public:
    Execution() = default;
    void end(std::span<Task::Place* const> places);

   private:
    friend class Recorder;
    std::shared_ptr<Timeline> timeline_;
    bool has_activity_ = false;
  };
  // `activity`: the backend's name for its work, see Backend::activity(); empty: it records Operation::activities.
  // `plan` is the number of the plan, the same on all ranks.
  Execution start(std::span<Operation* const> operations, std::string_view activity, const Plan& plan,
                  uint64_t number) const;

 private:
  mutable std::mutex mutex_;  // guards timeline_
  std::shared_ptr<Timeline> timeline_;
  std::atomic<bool> has_timeline_{false};  // so that the usual case needs no lock
};

}  // namespace hvd
