// The stand-in for CUDA and NCCL finds every planted bug on every schedule, and
// no fault in correct programs.
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>

#include <sstream>

#include "ranks.h"

namespace {

using testing::HasSubstr;

struct Listed {
  std::string name;
  int ranks;
  std::string caught;
};
void PrintTo(const Listed& program, std::ostream* out) { *out << program.name; }

std::vector<Listed> listed() {
  std::vector<Listed> programs;
  std::istringstream lines(ranks::run(1, {STANDIN_PROGRAMS}, {}).at(0).output);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    Listed program;
    words >> program.name >> program.ranks >> std::ws;
    std::getline(words, program.caught);
    programs.push_back(program);
  }
  return programs;
}

std::vector<Listed> chosen(bool correct) {
  auto programs = listed();
  std::erase_if(programs, [&](const Listed& one) { return one.caught.empty() != correct; });
  return programs;
}

using Variables = std::map<std::string, std::string>;

std::vector<ranks::Outcome> run(const std::string& name, int ranks, Variables variables) {
  variables["LD_LIBRARY_PATH"] = STANDIN_FOLDERS;
  variables.emplace("HVD_STANDIN_GPUS", "4");
  variables.emplace("HVD_STANDIN_MEMORY", "1000000000");
  return ranks::run(ranks, {STANDIN_PROGRAMS, name}, variables);
}

std::string all_output(const std::vector<ranks::Outcome>& outcomes) {
  std::string text;
  for (const auto& outcome : outcomes) text += outcome.output;
  return text;
}

Variables schedule(const std::string& name, int seed = 1) {
  return {{"HVD_STANDIN_SCHEDULE", name}, {"HVD_STANDIN_SEED", std::to_string(seed)}};
}

std::string name_of(const testing::TestParamInfo<Listed>& info) { return info.param.name; }

class PlantedBug : public testing::TestWithParam<Listed> {};

TEST_P(PlantedBug, IsCaughtOnEverySchedule) {
  for (const auto& variables : {schedule("eager"), schedule("lazy"), schedule("random", 1), schedule("random", 2)}) {
    const auto outcomes = run(GetParam().name, GetParam().ranks, variables);
    const std::string output = all_output(outcomes);
    EXPECT_THAT(output, HasSubstr(GetParam().caught));
    EXPECT_THAT(output, HasSubstr("VIOLATION"));
    bool aborted = false;
    for (const auto& outcome : outcomes)
      aborted = aborted || (WIFSIGNALED(outcome.status) && WTERMSIG(outcome.status) == SIGABRT);
    EXPECT_TRUE(aborted) << output;
  }
}
INSTANTIATE_TEST_SUITE_P(, PlantedBug, testing::ValuesIn(chosen(false)), name_of);

class CorrectProgram : public testing::TestWithParam<Listed> {};

TEST_P(CorrectProgram, PassesOnEverySchedule) {
  std::vector<Variables> all{schedule("eager"), schedule("lazy")};
  for (int seed = 1; seed <= 4; ++seed) all.push_back(schedule("random", seed));
  for (const auto& variables : all) {
    for (const auto& outcome : run(GetParam().name, GetParam().ranks, variables))
      EXPECT_TRUE(outcome.exited_with(0)) << outcome.output;
  }
}
INSTANTIATE_TEST_SUITE_P(, CorrectProgram, testing::ValuesIn(chosen(true)), name_of);

class RandomPrograms : public testing::TestWithParam<std::string> {};

TEST_P(RandomPrograms, PassWithAllWaitsAndAreCaughtWithoutOne) {
  for (int seed = 1; seed <= 25; ++seed) {
    Variables variables = schedule(GetParam(), seed);
    variables["PROGRAM_SEED"] = std::to_string(seed);
    const auto right = run("random_with_all_waits", 1, variables).at(0);
    EXPECT_TRUE(right.exited_with(0)) << "seed " << seed << "\n" << right.output;
    const auto wrong = run("random_without_one_wait", 1, variables).at(0);
    EXPECT_THAT(wrong.output, HasSubstr("two accesses that nothing orders")) << "seed " << seed;
  }
}
INSTANTIATE_TEST_SUITE_P(, RandomPrograms, testing::Values("eager", "lazy", "random"),
                         [](const auto& one) { return one.param; });

TEST(Probes, HoldOnTheStandIn) {
  const auto outcome = ranks::run(1, {GPU_PROBES}, {{"LD_LIBRARY_PATH", STANDIN_FOLDERS}}).at(0);
  EXPECT_TRUE(outcome.exited_with(0)) << outcome.output;
}

TEST(Violations, EndTheProcessAtExitIfAsked) {
  const auto outcome = run("sticky_error", 1, {{"HVD_STANDIN_VIOLATION", "exit"}}).at(0);
  EXPECT_TRUE(outcome.exited_with(86)) << outcome.output;
}

TEST(CountingMode, CountsAndChecksNothing) {
  const auto outcome = run("missing_wait_for_input", 1, {{"HVD_STANDIN_MODE", "count"}}).at(0);
  EXPECT_TRUE(outcome.exited_with(0)) << outcome.output;
  EXPECT_TRUE(run("counts", 1, {{"HVD_STANDIN_MODE", "count"}}).at(0).exited_with(0));
}

}  // namespace
