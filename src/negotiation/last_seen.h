// The last known activity of each rank, for reports about stalls. Thread rule: plain value.
#pragma once

#include <map>

#include "base/clock.h"
#include "model/plan.h"
#include "model/process_sets.h"
#include "negotiation/attendance.h"

namespace hvd {

class LastSeen {
 public:
  struct Finished {
    AgreedRequest request;
    TimePoint at;
  };

  explicit LastSeen(const Subtrees& tree) : tree_(tree), submitted_(tree) {}

  void submitted(Rank rank) { submitted_.insert(rank); }
  // Every rank below the child has submitted something.
  void submitted_by_all(Child child) {
    if (submitted_.contains_whole(child)) return;
    submitted_.insert_whole(child, static_cast<int32_t>(tree_.ranks(child).size()));
  }
  bool have_all_submitted(Child child) const { return submitted_.contains_whole(child); }
  bool has_submitted(Rank rank) const { return submitted_.contains(rank); }
  // The members of the set have agreed on this request, so none of them waits for it any more.
  void finished(int32_t process_set, const AgreedRequest& request, TimePoint now) {
    Finished& last = finished_[process_set];
    last.request = request;
    last.at = now;
  }

  void forget(int32_t process_set) { finished_.erase(process_set); }

  // The latest in all process sets of the rank; null: none.
  const Finished* last_finished(Rank rank, const ProcessSets& sets) const {
    const Finished* latest = nullptr;
    for (const auto& [set, finished] : finished_) {
      if (sets.contains(set, rank) && (latest == nullptr || finished.at > latest->at)) latest = &finished;
    }
    return latest;
  }

 private:
  const Subtrees& tree_;
  Attendance submitted_;
  std::map<int32_t, Finished> finished_;  // by process set: the same for all its members
};

}  // namespace hvd
