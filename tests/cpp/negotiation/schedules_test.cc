// Thousands of random schedules, in trees of all kinds.

#include "negotiation/schedule.h"
#include "support/effort.h"

namespace hvd {
namespace {

struct Seed {
  uint32_t value;
};
void PrintTo(const Seed& seed, std::ostream* out) { *out << "seed " << seed.value; }

class Schedules : public testing::TestWithParam<Seed> {
 protected:
  static uint32_t count() { return test::full() ? 250 : 50; }

  // Returns how many tensors were carried.
  int run_all(Mode mode) {
    int carried = 0;
    for (uint32_t i = 0; i < count(); i++) {
      uint32_t seed = GetParam().value * 1000 + i;
      SCOPED_TRACE(seed);
      Schedule schedule(seed, mode);
      schedule.run();
      if (HasFailure()) return carried;
      carried += schedule.carried();
    }
    return carried;
  }
};

TEST_P(Schedules, EndEveryJobOnceOnEveryRankInOneOrder) { run_all(Mode::flat); }
TEST_P(Schedules, DoSoWhereTensorsAreCarried) { EXPECT_GT(run_all(Mode::pair), static_cast<int>(count()) * 2 / 5); }
TEST_P(Schedules, DoSoInTrees) { run_all(Mode::tree); }
TEST_P(Schedules, DoSoInTreesWithATimeOut) { run_all(Mode::tree_with_timeout); }

INSTANTIATE_TEST_SUITE_P(Seeds, Schedules,
                         testing::Values(Seed{1}, Seed{2}, Seed{3}, Seed{4}, Seed{5}, Seed{6}, Seed{7}, Seed{8}));

}  // namespace
}  // namespace hvd
