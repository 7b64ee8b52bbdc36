// What each rank was last seen doing, for reports about stalls. Thread rule: plain value.
#pragma once

#include <map>

#include "base/clock.h"
#include "model/plan.h"
#include "model/process_sets.h"
#include "negotiation/rank_set.h"

namespace hvd {

class Activity {
 public:
  struct Finished {
    AgreedRequest request;
    TimePoint at;
  };

  explicit Activity(int32_t world_size) : submitted_(world_size) {}

  void submitted(Rank rank) { submitted_.insert(rank); }
  // The members of the set have agreed on this request, so none of them waits in it any more.
  void finished(int32_t process_set, const AgreedRequest& request, TimePoint now) {
    Finished& last = finished_[process_set];
    last.request = request;
    last.at = now;
  }

  void forget(int32_t process_set) { finished_.erase(process_set); }

  bool has_submitted(Rank rank) const { return submitted_.contains(rank); }
  // The latest of all process sets the rank is in; null: none.
  const Finished* last_finished(Rank rank, const ProcessSets& sets) const {
    const Finished* latest = nullptr;
    for (const auto& [set, finished] : finished_) {
      if (sets.contains(set, rank) && (latest == nullptr || finished.at > latest->at)) latest = &finished;
    }
    return latest;
  }

 private:
  RankSet submitted_;
  std::map<int32_t, Finished> finished_;  // by process set: the same for all its members
};

}  // namespace hvd
