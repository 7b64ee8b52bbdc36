#include "transport/width_choice.h"

#include <algorithm>

namespace hvd {

void WidthChoice::set_most(size_t most) {
  kept_ = most;
  trials_.clear();
  for (size_t width = 1; width <= most; width *= 2) trials_.push_back({width});
}

size_t WidthChoice::fastest() const {
  const Trial* best = &trials_.front();
  for (const Trial& trial : trials_) {
    if (trial.recorded > 0 && seconds_of(trial.best) * kGain < seconds_of(best->best)) best = &trial;
  }
  return best->width;
}

size_t WidthChoice::choose() {
  if (!is_open()) return kept_;
  int tries = kTrial * static_cast<int>(trials_.size());
  int now = chosen_++;
  if (now < tries) return trials_[static_cast<size_t>(now / kTrial)].width;
  if (now == tries) kept_ = fastest();
  if (now == tries + kKept) {
    chosen_ = 0;
    for (Trial& trial : trials_) trial = {trial.width};
  }
  return kept_;
}

void WidthChoice::record(size_t width, TimePoint now) {
  Duration time = spent_ + (now - since_);
  since_ = now;
  spent_ = {};
  auto trial = std::find_if(trials_.begin(), trials_.end(), [&](const Trial& one) { return one.width == width; });
  if (trial == trials_.end()) return;
  if (trial->recorded++ > 0) trial->best = std::min(trial->best, time);
}

}  // namespace hvd
