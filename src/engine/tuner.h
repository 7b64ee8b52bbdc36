// The autotuner: tries settings during the job, models bytes per second as a Gaussian process over them, picks the next
// one by expected improvement, and finally keeps the best. It never changes results, only speed. Runs on the root rank;
// the engine feeds it and distributes its result as a Tuning decision. Thread rule: one caller at a time. Time is
// passed in.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "model/plan.h"

namespace hvd {

struct TunerSettings {
  Tuning start{};
  bool fixed_fusion_threshold = false;  // set explicitly by the user: not tuned
  bool fixed_cycle_time = false;
  bool fixed_cache = false;
  bool fixed_one_shot_limit = false;
  int32_t warmup_samples = 3;
  int32_t steps_per_sample = 10;
  int32_t max_samples = 20;
  double noise = 0.8;      // alpha of the Gaussian process
  std::string log_path{};  // CSV; empty: none
  uint64_t seed = 1;
};

class Tuner {
 public:
  static Result<std::unique_ptr<Tuner>> create(TunerSettings settings);
  ~Tuner();

  // One executed plan of that many bytes, finished at `now`. A step is over when a tensor name repeats, which the
  // engine signals with `new_step`. Returns a new setting when it changes.
  std::optional<Tuning> record(size_t bytes, bool new_step, TimePoint now);
  bool done() const;  // the best setting has been chosen

 private:
  class State;
  explicit Tuner(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace hvd
