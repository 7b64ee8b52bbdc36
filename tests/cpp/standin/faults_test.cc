// Faults on request (HVD_STANDIN_FAULTS) reach the program as the error that
// the real library would give.
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>

#include "ranks.h"

namespace {

using testing::HasSubstr;

struct Faulty {
  const char* name;
  const char* faults;
  const char* rank_0;        // what rank 0 prints
  int signal_of_rank_1 = 0;  // that ends rank 1; 0: it ends by itself
};
void PrintTo(const Faulty& faulty, std::ostream* out) { *out << faulty.faults; }

class Faults : public testing::TestWithParam<Faulty> {};

TEST_P(Faults, ReachTheProgram) {
  const auto outcomes = ranks::run(
      2, {STANDIN_PROGRAMS, "steps_until_trouble"},
      {{"LD_LIBRARY_PATH", STANDIN_FOLDERS}, {"HVD_STANDIN_GPUS", "2"}, {"HVD_STANDIN_FAULTS", GetParam().faults}});
  EXPECT_THAT(outcomes[0].output, HasSubstr(GetParam().rank_0));
  EXPECT_TRUE(outcomes[0].exited_with(0)) << outcomes[0].output;
  if (GetParam().signal_of_rank_1 != 0) {
    EXPECT_TRUE(WIFSIGNALED(outcomes[1].status)) << outcomes[1].output;
    EXPECT_EQ(WTERMSIG(outcomes[1].status), GetParam().signal_of_rank_1);
  } else {
    EXPECT_TRUE(outcomes[1].exited_with(0)) << outcomes[1].output;
  }
}

INSTANTIATE_TEST_SUITE_P(
    , Faults,
    testing::Values(Faulty{"None", "", "ended with 0"},
                    Faulty{"ConnectFails", "0:nccl.connect=3;1:nccl.connect=3", "ended with 3"},
                    Faulty{"AsyncError", "nccl.kernel@2=async(6)", "ended with 6"},
                    Faulty{"KilledInAKernel", "1:nccl.kernel@3=kill", "ended with 6", SIGKILL},
                    Faulty{"KilledInTheFirstKernel", "1:nccl.kernel@1=kill", "ended with 6", SIGKILL},
                    Faulty{"SlowPeer", "1:nccl.kernel@2=slow(200)", "ended with 0"},
                    Faulty{"BusyForAWhile", "nccl.launch@2=busy(100)", "ended with 0"},
                    Faulty{"SlowAbort", "nccl.kernel@2=async(3);ncclCommAbort=slow(100)", "ended with 3"}),
    [](const auto& one) { return one.param.name; });

}  // namespace
