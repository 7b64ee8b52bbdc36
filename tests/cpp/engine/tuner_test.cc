#include "engine/tuner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "engine/temporary_directory.h"

namespace hvd {
namespace {

using testing::ElementsAre;

constexpr size_t kPlanBytes = 10'000'000;
constexpr const char* kHeader =
    "hierarchical_allreduce,hierarchical_allgather,torus_allreduce,cache_enabled,cycle_time_ms,tensor_fusion_threshold,"
    "score";

using Surface = std::function<double(const Tuning&)>;  // bytes per second

double megabytes_of(const Tuning& tuning) { return static_cast<double>(tuning.fusion_threshold) / (1 << 20); }

// Best, 1e9, at 16 MB, 3 ms, with the cache, 16 KiB.
double hill(const Tuning& tuning) {
  double fusion = std::log2(1 + megabytes_of(tuning)) - std::log2(17);
  double cycle = std::log2(1 + tuning.cycle_time_ms) - 2;
  double one_shot = std::log2(static_cast<double>(tuning.one_shot_limit)) - 14;
  return 1e9 * std::exp(-0.08 * fusion * fusion - 0.15 * cycle * cycle - 0.03 * one_shot * one_shot) *
         (tuning.cache_enabled ? 1 : 0.8);
}

// A job of steps with one plan each, as the engine would report it.
struct Job {
  explicit Job(TunerSettings settings, Surface speed, double noise = 0)
      : tuner(std::move(*Tuner::create(settings))),
        surface(std::move(speed)),
        error(0, noise),
        current(settings.start) {}

  void step() {
    now += seconds(static_cast<double>(kPlanBytes) / (surface(current) * std::exp(error(random))));
    steps++;
    if (auto changed = tuner->record(kPlanBytes, true, now)) {
      EXPECT_NE(*changed, current);  // only real changes are reported
      current = *changed;
      tried.push_back(current);
    }
  }
  Tuning run() {
    while (!tuner->done() && steps < 100000) step();
    EXPECT_TRUE(tuner->done());
    return current;
  }

  std::unique_ptr<Tuner> tuner;
  Surface surface;
  std::mt19937_64 random{42};
  std::normal_distribution<double> error;
  Tuning current;
  std::vector<Tuning> tried;
  TimePoint now{};
  int steps = 0;
};

std::vector<std::string> lines_of(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

std::vector<double> numbers_of(const std::string& line) {
  std::istringstream fields(line);
  std::vector<double> numbers;
  for (std::string field; std::getline(fields, field, ',');) numbers.push_back(std::stod(field));
  return numbers;
}

TEST(Tuner, EndsNearTheOptimum) {
  double start = hill(Tuning{}), sum = 0;
  constexpr int kSeeds = 5;
  for (uint64_t seed = 1; seed <= kSeeds; seed++) {
    double speed = hill(Job({.seed = seed}, hill, 0.1).run());
    EXPECT_GT(speed, 1.3 * start) << seed;
    sum += speed;
  }
  EXPECT_GT(sum / kSeeds, 0.85e9);
}

TEST(Tuner, FindsTheOptimumOfTwoKnobsInSpiteOfNoise) {
  for (uint64_t seed = 1; seed <= 5; seed++) {
    TunerSettings settings{.start = {.one_shot_limit = 16 << 10}, .seed = seed};
    settings.fixed_cache = settings.fixed_one_shot_limit = true;
    EXPECT_GT(hill(Job(settings, hill, 0.1).run()), 0.9e9) << seed;
  }
}

TEST(Tuner, StaysAtTheStartWhenThatIsBest) {
  Surface down = [](const Tuning& tuning) {
    return 1e9 / (1 + tuning.cycle_time_ms + 128 - std::min(128.0, megabytes_of(tuning)));
  };
  Tuning best = Job({}, down, 0.02).run();
  EXPECT_GE(megabytes_of(best), 128);
  EXPECT_EQ(best.cycle_time_ms, 0);
}

TEST(Tuner, HoldsWhatTheUserHasSet) {
  const Tuning start{.fusion_threshold = 12345, .cycle_time_ms = 0.3, .cache_enabled = false, .one_shot_limit = 777};
  auto tried = [&](TunerSettings settings) {
    settings.start = start;
    Job job(settings, hill);
    job.run();
    return job.tried;
  };
  for (const Tuning& tuning : tried({.fixed_fusion_threshold = true})) EXPECT_EQ(tuning.fusion_threshold, 12345);
  for (const Tuning& tuning : tried({.fixed_cycle_time = true})) EXPECT_EQ(tuning.cycle_time_ms, 0.3);
  for (const Tuning& tuning : tried({.fixed_cache = true})) EXPECT_FALSE(tuning.cache_enabled);
  for (const Tuning& tuning : tried({.fixed_one_shot_limit = true})) EXPECT_EQ(tuning.one_shot_limit, 777);
  EXPECT_FALSE(tried({.fixed_one_shot_limit = true}).empty());
  EXPECT_TRUE(
      tried(
          {.fixed_fusion_threshold = true, .fixed_cycle_time = true, .fixed_cache = true, .fixed_one_shot_limit = true})
          .empty());
}

TEST(Tuner, TriesOnlySettingsWithinTheirRanges) {
  Job job({.max_samples = 40}, hill, 0.3);
  job.run();
  for (const Tuning& tuning : job.tried) {
    EXPECT_GE(tuning.fusion_threshold, 0);
    EXPECT_LE(tuning.fusion_threshold, 256 << 20);
    EXPECT_GE(tuning.cycle_time_ms, 0);
    EXPECT_LE(tuning.cycle_time_ms, 20);
    EXPECT_GE(tuning.one_shot_limit, 4 << 10);
    EXPECT_LE(tuning.one_shot_limit, 64 << 10);
  }
}

TEST(Tuner, TakesTheSameNumberOfStepsWhateverTheNoiseAndThenRests) {
  TunerSettings settings{.warmup_samples = 2, .steps_per_sample = 5, .max_samples = 12};
  for (double noise : {0.0, 0.5}) {
    Job job(settings, hill, noise);
    job.run();
    EXPECT_EQ(job.steps, 1 + (2 + 12) * (1 + 5));  // one to start the clock, and one to settle before each sample
    size_t changes = job.tried.size();
    for (int i = 0; i < 1000; i++) job.step();
    EXPECT_EQ(job.tried.size(), changes);
  }
}

TEST(Tuner, WarmupIsSpentAtTheStartAndNotLogged) {
  TemporaryDirectory directory;
  std::string path = directory.file("autotune.csv");
  Job job({.warmup_samples = 3, .steps_per_sample = 4, .max_samples = 2, .log_path = path}, hill);
  while (job.steps < 1 + 3 * (1 + 4)) job.step();
  EXPECT_TRUE(job.tried.empty());
  EXPECT_THAT(lines_of(path), ElementsAre(kHeader));
}

TEST(Tuner, TheSameSeedTakesTheSamePath) {
  auto path = [](uint64_t seed) {
    Job job({.seed = seed}, hill, 0.2);
    job.run();
    return job.tried;
  };
  EXPECT_EQ(path(3), path(3));
  EXPECT_NE(path(3), path(4));
}

TEST(Tuner, LogsEachSampleAndTheBestLast) {
  TemporaryDirectory directory;
  std::string path = directory.file("autotune.csv");
  Tuning best = Job({.max_samples = 10, .log_path = path}, hill).run();
  std::vector<std::string> lines = lines_of(path);
  ASSERT_EQ(lines.size(), 1u + 10 + 1);
  EXPECT_EQ(lines[0], kHeader);
  std::vector<double> first = numbers_of(lines[1]), last = numbers_of(lines.back());
  ASSERT_EQ(first.size(), 7u);
  EXPECT_THAT(std::vector<double>(first.begin(), first.end() - 1), ElementsAre(0, 0, 0, 1, 0, 128));
  EXPECT_NEAR(first.back(), hill(Tuning{}), 1e-3 * hill(Tuning{}));
  EXPECT_THAT(std::vector<double>(last.begin(), last.end() - 1),
              ElementsAre(0, 0, 0, best.cache_enabled, best.cycle_time_ms, megabytes_of(best)));
  EXPECT_NEAR(last.back(), hill(best), 1e-3 * hill(best));
}

TEST(Tuner, AStepMayHaveManyPlans) {
  TemporaryDirectory directory;
  std::string path = directory.file("autotune.csv");
  auto tuner = Tuner::create({.warmup_samples = 0, .steps_per_sample = 2, .max_samples = 1, .log_path = path});
  ASSERT_TRUE(tuner.ok());
  TimePoint now{};
  // A step is three plans of 100 bytes, a second each; the first of them marks a new step.
  for (int plan = 0; !(*tuner)->done(); plan++) {
    ASSERT_LT(plan, 10);
    now += seconds(1);
    (*tuner)->record(100, plan > 0 && plan % 3 == 0, now);
  }
  EXPECT_EQ(lines_of(path).at(1), "0,0,0,1,0,128,100");
}

TEST(Tuner, AnUnwritableLogIsAnError) {
  TemporaryDirectory directory;
  auto tuner = Tuner::create({.log_path = directory.file("missing/autotune.csv")});
  ASSERT_FALSE(tuner.ok());
  EXPECT_THAT(std::string(tuner.status().message()), testing::HasSubstr("missing/autotune.csv"));
  EXPECT_FALSE(Tuner::create({.log_path = "/dev/full"}).ok());
}

}  // namespace
}  // namespace hvd
