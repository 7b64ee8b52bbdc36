#include "launcher/workers/binding.h"

#include <gmock/gmock.h>

#include <set>

namespace hvd::launcher {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(Binding, ReadsTheKernelsLists) {
  EXPECT_THAT(parse_cpu_list("0-3,8,10-11\n"), ElementsAre(0, 1, 2, 3, 8, 10, 11));
  EXPECT_THAT(parse_cpu_list("5"), ElementsAre(5));
  EXPECT_THAT(parse_cpu_list(""), IsEmpty());
  EXPECT_THAT(parse_cpu_list("x,3"), ElementsAre(3));
}

TEST(Binding, NoneBindsNobody) {
  EXPECT_THAT(Binding("").cpus_of(0, 1), IsEmpty());
  EXPECT_THAT(Binding("none").cpus_of(0, 1), IsEmpty());
}

TEST(Binding, CoresAreSharedOutWithoutOverlapAndWithoutRest) {
  Binding cores("core");
  int count = core_count();
  for (int workers = 1; workers <= count; workers++) {
    std::multiset<int> all;
    for (int worker = 0; worker < workers; worker++) {
      auto own = cores.cpus_of(worker, workers);
      EXPECT_FALSE(own.empty());
      all.insert(own.begin(), own.end());
    }
    EXPECT_EQ(static_cast<int>(all.size()), count);
    EXPECT_EQ(std::set<int>(all.begin(), all.end()).size(), all.size());
  }
  for (int worker = 0; worker < 2 * count; worker++) EXPECT_EQ(cores.cpus_of(worker, 2 * count).size(), 1u);
}

}  // namespace
}  // namespace hvd::launcher
