#include "engine/tuner.h"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <fstream>
#include <random>
#include <utility>
#include <vector>

#include "base/log.h"
#include "engine/gaussian_process.h"

namespace hvd {
namespace {

constexpr double kMiB = 1 << 20;

// The settings to try. Round numbers, evenly spaced on the scales of point_of().
constexpr int64_t kFusionThresholds[] = {0,        1 << 20,  2 << 20,  4 << 20,   8 << 20,
                                         16 << 20, 32 << 20, 64 << 20, 128 << 20, 256 << 20};
constexpr double kCycleTimes[] = {0, 0.5, 1, 2, 3, 5, 7.5, 10, 15, 20};
constexpr bool kCacheEnabled[] = {false, true};
constexpr int64_t kOneShotLimits[] = {4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10};

// At first, this many settings are spread over the space, before the model is used.
constexpr size_t kSpreadSamples = 5;

constexpr const char* kLogHeader =
    "hierarchical_allreduce,hierarchical_allgather,torus_allreduce,cache_enabled,cycle_time_ms,tensor_fusion_threshold,"
    "score\n";

template <class Value, size_t count>
std::vector<Value> levels(const Value (&values)[count], bool fixed, Value start) {
  return fixed ? std::vector<Value>{start} : std::vector<Value>(std::begin(values), std::end(values));
}

// Position of a setting in the unit cube. Sizes and times are on logarithmic scales that include 0.
Eigen::Vector4d point_of(const Tuning& tuning) {
  return {std::log2(1 + static_cast<double>(tuning.fusion_threshold) / kMiB) / std::log2(257),
          std::log2(1 + tuning.cycle_time_ms) / std::log2(21), tuning.cache_enabled ? 1.0 : 0.0,
          std::log2(std::max<double>(static_cast<double>(tuning.one_shot_limit), 4096) / 4096) / 4};
}

// All combinations of the levels of each knob.
class Space {
 public:
  explicit Space(const TunerSettings& settings)
      : fusion_thresholds_(levels(kFusionThresholds, settings.fixed_fusion_threshold, settings.start.fusion_threshold)),
        cycle_times_(levels(kCycleTimes, settings.fixed_cycle_time, settings.start.cycle_time_ms)),
        caches_(levels(kCacheEnabled, settings.fixed_cache, settings.start.cache_enabled)),
        one_shot_limits_(levels(kOneShotLimits, settings.fixed_one_shot_limit, settings.start.one_shot_limit)) {}

  std::vector<Tuning> all() const {
    std::vector<Tuning> settings;
    for (int64_t threshold : fusion_thresholds_) {
      for (double cycle_time : cycle_times_) {
        for (bool cache : caches_) {
          for (int64_t limit : one_shot_limits_) settings.push_back({threshold, cycle_time, cache, limit});
        }
      }
    }
    return settings;
  }

  // A Latin hypercube: each knob's levels are divided into `count` parts and every part is visited once.
  std::vector<Tuning> spread(size_t count, std::mt19937_64& random) const {
    auto thresholds = visit(fusion_thresholds_, count, random);
    auto cycle_times = visit(cycle_times_, count, random);
    auto caches = visit(caches_, count, random);
    auto limits = visit(one_shot_limits_, count, random);
    std::vector<Tuning> settings;
    for (size_t i = 0; i < count; i++) settings.push_back({thresholds[i], cycle_times[i], caches[i], limits[i]});
    return settings;
  }

 private:
  template <class Value>
  static std::vector<Value> visit(const std::vector<Value>& values, size_t count, std::mt19937_64& random) {
    std::vector<Value> visited;
    for (size_t part = 0; part < count; part++) visited.push_back(values[(2 * part + 1) * values.size() / (2 * count)]);
    std::shuffle(visited.begin(), visited.end(), random);
    return visited;
  }

  std::vector<int64_t> fusion_thresholds_;
  std::vector<double> cycle_times_;
  std::vector<bool> caches_;
  std::vector<int64_t> one_shot_limits_;
};

struct Sample {
  Tuning tuning;
  double score = 0;  // bytes per second
};

template <class Item, class Score>
Item find_largest(const std::vector<Item>& items, Score score) {
  size_t best = 0;
  double best_score = score(items[0]);
  for (size_t i = 1; i < items.size(); i++) {
    if (double other = score(items[i]); other > best_score) {
      best_score = other;
      best = i;
    }
  }
  return items[best];
}

}  // namespace

class Tuner::State {
 public:
  State(TunerSettings settings, std::ofstream log)
      : settings_(std::move(settings)), log_(std::move(log)), current_(settings_.start) {
    Space space(settings_);
    std::mt19937_64 random(settings_.seed);
    candidates_ = space.all();
    std::shuffle(candidates_.begin(), candidates_.end(), random);  // so that ties are broken randomly
    spread_ = space.spread(kSpreadSamples, random);
  }

  bool done() const { return done_; }

  std::optional<Tuning> record(size_t bytes, bool new_step, TimePoint now) {
    if (done_) return std::nullopt;
    std::optional<Tuning> changed;
    if (new_step && last_) {
      if (settling_) {
        settling_ = false;
        sample_start_ = *last_;
        bytes_ = 0;
        steps_ = 0;
      } else if (++steps_ == settings_.steps_per_sample) {
        changed = end_sample(bytes_ / std::max(seconds_of(*last_ - sample_start_), 1e-9));
        settling_ = true;
      }
    }
    bytes_ += static_cast<double>(bytes);
    last_ = now;
    return changed;
  }

 private:
  std::optional<Tuning> end_sample(double score) {
    if (warmups_ < settings_.warmup_samples) {
      warmups_++;
      return std::nullopt;
    }
    samples_.push_back({current_, score});
    write_row(samples_.back());
    Tuning next;
    if (samples_.size() < static_cast<size_t>(settings_.max_samples)) {
      next = choose_next();
    } else {
      Sample best = find_best(model());
      write_row(best);
      next = best.tuning;
      done_ = true;
    }
    if (next == std::exchange(current_, next)) return std::nullopt;
    return next;
  }

  GaussianProcess model() const {
    Eigen::MatrixXd points(4, samples_.size());
    Eigen::VectorXd scores(samples_.size());
    for (size_t i = 0; i < samples_.size(); i++) {
      points.col(static_cast<Eigen::Index>(i)) = point_of(samples_[i].tuning);
      scores[static_cast<Eigen::Index>(i)] = samples_[i].score;
    }
    return GaussianProcess(std::move(points), scores, settings_.noise);
  }

  Tuning choose_next() const {
    if (samples_.size() <= spread_.size()) return spread_[samples_.size() - 1];
    GaussianProcess process = model();
    double best = process.at(point_of(find_best(process).tuning)).mean;
    return find_largest(candidates_, [&](const Tuning& candidate) {
      return expected_improvement(process.at(point_of(candidate)), best);
    });
  }

  // Chosen by the model: a single score may be luck.
  Sample find_best(const GaussianProcess& process) const {
    return find_largest(samples_, [&](const Sample& sample) { return process.at(point_of(sample.tuning)).mean; });
  }

  void write_row(const Sample& sample) {
    if (!log_.is_open()) return;
    log_ << fmt::format("0,0,0,{:d},{},{},{}\n", sample.tuning.cache_enabled, sample.tuning.cycle_time_ms,
                        static_cast<double>(sample.tuning.fusion_threshold) / kMiB, sample.score);
    log_.flush();
    if (log_.fail()) {
      log_warning("cannot write autotune log {}: it ends here", settings_.log_path);
      log_.close();
    }
  }

  const TunerSettings settings_;
  std::ofstream log_;
  std::vector<Tuning> candidates_, spread_;
  Tuning current_;
  std::vector<Sample> samples_;
  int32_t warmups_ = 0;
  bool done_ = false;

  // The current sample. A record that starts a step ends the previous one. The step after a sample is not counted: it
  // began with the old setting.
  bool settling_ = true;
  TimePoint sample_start_;
  std::optional<TimePoint> last_;
  double bytes_ = 0;
  int32_t steps_ = 0;
};

Result<std::unique_ptr<Tuner>> Tuner::create(TunerSettings settings) {
  std::ofstream log;
  if (!settings.log_path.empty()) {
    log.open(settings.log_path);
    log << kLogHeader << std::flush;
    if (log.fail()) return system_error("cannot write autotune log", settings.log_path);
  }
  return std::unique_ptr<Tuner>(new Tuner(std::make_unique<State>(std::move(settings), std::move(log))));
}

Tuner::Tuner(std::unique_ptr<State> state) : state_(std::move(state)) {}
Tuner::~Tuner() = default;

std::optional<Tuning> Tuner::record(size_t bytes, bool new_step, TimePoint now) {
  return state_->record(bytes, new_step, now);
}
bool Tuner::done() const { return state_->done(); }

}  // namespace hvd
