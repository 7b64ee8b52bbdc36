#include "model/scheduler.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "base/joined.h"
#include "model/config.h"

namespace hvd {
namespace {

using testing::AllOf;
using testing::HasSubstr;

using Environment = std::map<std::string, std::string>;
using Place = std::array<int32_t, 6>;  // rank, size, local rank and size, cross rank and size

Result<Config> parse(const Environment& environment) {
  return parse_config([&](const char* name) -> const char* {
    auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second.c_str();
  });
}

Config config_of(const Environment& environment) {
  auto config = parse(environment);
  EXPECT_TRUE(config.ok()) << config.status().message();
  return config.ok() ? *config : Config();
}

std::string error_of(const Environment& environment) {
  auto config = parse(environment);
  EXPECT_FALSE(config.ok());
  return std::string(config.status().message());
}

Place place_of(const Config& c) { return {c.rank, c.size, c.local_rank, c.local_size, c.cross_rank, c.cross_size}; }

Environment open_mpi(int rank, int size, int local_rank, int local_size) {
  return {{"OMPI_COMM_WORLD_RANK", std::to_string(rank)},
          {"OMPI_COMM_WORLD_SIZE", std::to_string(size)},
          {"OMPI_COMM_WORLD_LOCAL_RANK", std::to_string(local_rank)},
          {"OMPI_COMM_WORLD_LOCAL_SIZE", std::to_string(local_size)},
          {"PMIX_NAMESPACE", "4711"}};
}

Environment pmi(int rank, int size, int local_rank, int local_size) {
  return {{"PMI_RANK", std::to_string(rank)},
          {"PMI_SIZE", std::to_string(size)},
          {"MPI_LOCALRANKID", std::to_string(local_rank)},
          {"MPI_LOCALNRANKS", std::to_string(local_size)}};
}

Environment slurm(int rank, int size, int local_rank, int node, const std::string& tasks) {
  return {{"SLURM_JOB_ID", "1234"},
          {"SLURM_STEP_ID", "2"},
          {"SLURM_PROCID", std::to_string(rank)},
          {"SLURM_LOCALID", std::to_string(local_rank)},
          {"SLURM_NODEID", std::to_string(node)},
          {"SLURM_STEP_NUM_TASKS", std::to_string(size)},
          {"SLURM_STEP_NODELIST", "node[3-99]"},
          {"SLURM_STEP_TASKS_PER_NODE", tasks},
          {"_HOROVOD_SECRET_KEY", "00ff"}};
}

Environment with(Environment environment, const Environment& more) {
  for (const auto& [name, value] : more) environment[name] = value;
  return environment;
}

TEST(Scheduler, OpenMpiOnOneHost) {
  Config config = config_of(open_mpi(1, 3, 1, 3));
  EXPECT_EQ(place_of(config), (Place{1, 3, 1, 3, 0, 1}));
  EXPECT_THAT(config.job, HasSubstr("4711"));
  EXPECT_EQ(config.rendezvous_addr, "");
}

TEST(Scheduler, OpenMpiOnSeveralHostsMustBeToldWhereToMeet) {
  EXPECT_THAT(error_of(open_mpi(3, 4, 1, 2)),
              AllOf(HasSubstr("HOROVOD_GLOO_RENDEZVOUS_ADDR"), HasSubstr("HOROVOD_GLOO_RENDEZVOUS_PORT"),
                    HasSubstr("_HOROVOD_SECRET_KEY"), HasSubstr("horovodrun")));
  const Environment meeting{{"HOROVOD_GLOO_RENDEZVOUS_ADDR", "a"}, {"HOROVOD_GLOO_RENDEZVOUS_PORT", "4000"}};
  EXPECT_THAT(error_of(with(open_mpi(3, 4, 1, 2), meeting)), HasSubstr("_HOROVOD_SECRET_KEY"));
  Environment all = with(with(open_mpi(3, 4, 1, 2), meeting), {{"_HOROVOD_SECRET_KEY", "00"}});
  EXPECT_EQ(place_of(config_of(all)), (Place{3, 4, 1, 2, 1, 2}));
}

TEST(Scheduler, RanksThatAreNotConsecutiveOnTheirHostsAreRefused) {
  EXPECT_THAT(error_of(open_mpi(1, 4, 0, 2)), HasSubstr("map ranks by slot"));   // by node
  EXPECT_THAT(error_of(open_mpi(1, 3, 1, 2)), HasSubstr("the same number on"));  // 2 and 1
}

TEST(Scheduler, HalfOfAPairIsAnError) {
  EXPECT_THAT(error_of({{"OMPI_COMM_WORLD_RANK", "1"}}), HasSubstr("OMPI_COMM_WORLD_SIZE is not set"));
  EXPECT_THAT(error_of({{"PMI_SIZE", "2"}}), HasSubstr("PMI_RANK is not set"));
  EXPECT_THAT(error_of({{"PMI_SIZE", "2"}, {"PMI_RANK", "x"}}), HasSubstr("PMI_RANK=x is not a number"));
  EXPECT_THAT(error_of({{"PMI_SIZE", "2"}, {"PMI_RANK", "1"}}), HasSubstr("which of the processes are on this host"));
}

TEST(Scheduler, PmiOnOneHost) {
  EXPECT_EQ(place_of(config_of(pmi(1, 2, 1, 2))), (Place{1, 2, 1, 2, 0, 1}));
  EXPECT_EQ(config_of(pmi(1, 2, 1, 2)).job, config_of(pmi(0, 2, 0, 2)).job);
  Environment cray{{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"PMI_LOCAL_RANK", "1"}, {"PMI_LOCAL_SIZE", "2"}};
  EXPECT_EQ(place_of(config_of(cray)), (Place{1, 2, 1, 2, 0, 1}));
  EXPECT_EQ(place_of(config_of({{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}})), (Place{0, 1, 0, 1, 0, 1}));
}

TEST(Scheduler, HorovodsOwnVariablesWinThenOpenMpiThenPmiThenSlurm) {
  Environment all = slurm(2, 9, 0, 2, "1(x9)");
  EXPECT_EQ(config_of(all).size, 9);
  all = with(all, pmi(1, 5, 1, 5));
  EXPECT_EQ(config_of(all).size, 5);
  all = with(all, open_mpi(1, 3, 1, 3));
  EXPECT_EQ(config_of(all).size, 3);
  all = with(all, {{"HOROVOD_RANK", "0"}, {"HOROVOD_SIZE", "1"}});
  EXPECT_EQ(config_of(all).size, 1);
  EXPECT_EQ(config_of(all).job, "");
}

TEST(Scheduler, SlurmKnowsMoreThanItsOwnPmi) {
  Environment both = with(slurm(2, 4, 0, 1, "2(x2)"), {{"PMI_RANK", "2"}, {"PMI_SIZE", "4"}});
  EXPECT_EQ(place_of(config_of(both)), (Place{2, 4, 0, 2, 1, 2}));
}

TEST(Scheduler, SlurmTasksOfOneHostNeedNoKeyAndNoAddress) {
  Environment environment = slurm(1, 2, 1, 0, "2");
  environment.erase("_HOROVOD_SECRET_KEY");
  Config config = config_of(environment);
  EXPECT_EQ(place_of(config), (Place{1, 2, 1, 2, 0, 1}));
  EXPECT_EQ(config.job, "slurm/1234.2");
  EXPECT_EQ(config.rendezvous_addr, "");
}

TEST(Scheduler, SlurmTasksOfSeveralHostsMeetOnTheFirst) {
  Config config = config_of(slurm(2, 3, 0, 1, "2,1"));
  EXPECT_EQ(config.rendezvous_addr, "node3");
  EXPECT_GE(config.rendezvous_port, 20000);
  EXPECT_LT(config.rendezvous_port, 32768);
  EXPECT_EQ(config_of(slurm(0, 3, 0, 0, "2,1")).rendezvous_port, config.rendezvous_port);
  Environment next = with(slurm(0, 3, 0, 0, "2,1"), {{"SLURM_STEP_ID", "3"}});
  EXPECT_NE(config_of(next).rendezvous_port, config.rendezvous_port);
  Environment chosen = with(next, {{"HOROVOD_GLOO_RENDEZVOUS_ADDR", "x"}, {"HOROVOD_GLOO_RENDEZVOUS_PORT", "77"}});
  EXPECT_EQ(config_of(chosen).rendezvous_addr, "x");
  EXPECT_EQ(config_of(chosen).rendezvous_port, 77);
}

TEST(Scheduler, SlurmTasksOfSeveralHostsNeedAKey) {
  Environment environment = slurm(2, 3, 0, 1, "2,1");
  environment.erase("_HOROVOD_SECRET_KEY");
  EXPECT_THAT(error_of(environment), HasSubstr("export _HOROVOD_SECRET_KEY=$(openssl rand -hex 32)"));
}

TEST(Scheduler, MpiKnowsThePlacesAndIsComparedWithWhatWasStarted) {
  Environment by_srun = with(slurm(2, 3, 0, 1, "2,1"), {{"HOROVOD_CONTROLLER", "mpi"}});
  by_srun.erase("_HOROVOD_SECRET_KEY");  // MPI brings one
  EXPECT_EQ(config_of(by_srun).size, 1);
  EXPECT_EQ(config_of(by_srun).started_size, 3);
  EXPECT_EQ(config_of(by_srun).started_by, "srun");
  Environment by_mpirun = with(open_mpi(1, 4, 1, 2), {{"HOROVOD_CPU_OPERATIONS", "mpi"}});
  EXPECT_EQ(config_of(by_mpirun).started_size, 4);
  EXPECT_EQ(config_of(by_mpirun).started_by, "mpirun");
  EXPECT_EQ(config_of(with(by_mpirun, {{"HOROVOD_SIZE", "1"}})).started_size, 0);
}

MpiLaunch expected(const Environment& environment) {
  return expected_mpi([&](const char* name) -> const char* {
    auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second.c_str();
  });
}

TEST(Scheduler, MpiIsExpectedWhereALauncherOfMpiStartedTheRanks) {
  EXPECT_EQ(expected({}), MpiLaunch::none);
  EXPECT_EQ(expected(open_mpi(1, 4, 1, 4)), MpiLaunch::one_host);
  EXPECT_EQ(expected(open_mpi(0, 1, 0, 1)), MpiLaunch::one_host);
  EXPECT_EQ(expected(open_mpi(1, 4, 1, 2)), MpiLaunch::several_hosts);
  EXPECT_EQ(expected(open_mpi(3, 4, 0, 1)), MpiLaunch::several_hosts);  // 3 + 1 ranks: only MPI has the placement
  EXPECT_EQ(expected(pmi(1, 4, 1, 4)), MpiLaunch::one_host);
  EXPECT_EQ(expected(pmi(1, 4, 1, 2)), MpiLaunch::several_hosts);
  // or one host: only MPI has the placement
  EXPECT_EQ(expected({{"PMI_RANK", "0"}, {"PMI_SIZE", "4"}}), MpiLaunch::several_hosts);
  EXPECT_EQ(expected({{"PMIX_RANK", "0"}, {"PMIX_NAMESPACE", "x"}}), MpiLaunch::several_hosts);
}

TEST(Scheduler, MpiIsExpectedOfSrunIfItSpeaksPmi) {
  Environment one = slurm(1, 2, 1, 0, "2"), several = slurm(2, 3, 0, 1, "2,1");
  one.erase("_HOROVOD_SECRET_KEY");
  several.erase("_HOROVOD_SECRET_KEY");
  Environment pmix{{"PMIX_RANK", "1"}, {"PMIX_NAMESPACE", "slurm.pmix.3.0"}};
  EXPECT_EQ(expected(one), MpiLaunch::none);
  EXPECT_EQ(expected(several), MpiLaunch::none);
  EXPECT_EQ(expected(with(one, pmix)), MpiLaunch::one_host);
  EXPECT_EQ(expected(with(several, pmix)), MpiLaunch::several_hosts);
  EXPECT_EQ(expected(with(several, {{"PMI_RANK", "2"}, {"PMI_SIZE", "3"}})), MpiLaunch::several_hosts);
  EXPECT_EQ(expected(with(with(several, pmix), {{"_HOROVOD_SECRET_KEY", std::string(64, 'a')}})), MpiLaunch::none);
  EXPECT_EQ(expected(with(slurm(0, 1, 0, 0, "1"), pmix)), MpiLaunch::none);  // a shell, maybe
  EXPECT_EQ(expected(with(pmix, {{"SLURM_JOB_ID", "7"}})), MpiLaunch::none);
}

TEST(Scheduler, OtherVariablesDecideAgainstMpi) {
  for (const Environment& mpi : {open_mpi(1, 4, 1, 4), open_mpi(1, 4, 1, 2), pmi(1, 4, 1, 2)}) {
    for (const char* name : {"HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_CONTROLLER", "HOROVOD_GLOO_RENDEZVOUS_ADDR"}) {
      EXPECT_EQ(expected(with(mpi, {{name, "1"}})), MpiLaunch::none) << name;
      EXPECT_NE(expected(with(mpi, {{name, ""}})), MpiLaunch::none) << name;
    }
  }
  // The ranks compare their settings, even if one of them was started without MPI.
  EXPECT_EQ(config_of(with(open_mpi(1, 4, 1, 4), {{"HOROVOD_CONTROLLER", "gloo"}})).mpi_launch, MpiLaunch::one_host);
  EXPECT_EQ(config_of(with(open_mpi(1, 4, 1, 4), {{"HOROVOD_CONTROLLER", "mpi"}})).mpi_launch, MpiLaunch::none);
}

TEST(Scheduler, ABatchScriptIsNoTask) {
  Environment script{{"SLURM_JOB_ID", "7"}, {"SLURM_PROCID", "0"},           {"SLURM_LOCALID", "0"},
                     {"SLURM_NODEID", "0"}, {"SLURM_NTASKS", "3"},           {"SLURM_GTIDS", "0"},
                     {"SLURM_NNODES", "2"}, {"SLURM_TASKS_PER_NODE", "2,1"}, {"SLURM_JOB_NODELIST", "node[1-2]"}};
  EXPECT_EQ(place_of(config_of(script)), (Place{0, 1, 0, 1, 0, 1}));
}

TEST(Scheduler, SlurmVariablesThatContradictEachOtherAreRefused) {
  EXPECT_THAT(error_of(slurm(0, 2, 0, 5, "1(x2)")), HasSubstr("SLURM_NODEID=5"));
  EXPECT_THAT(error_of(slurm(0, 2, 0, 0, "1(y2)")), HasSubstr("1(y2)"));
  EXPECT_THAT(error_of(slurm(7, 2, 0, 0, "1(x2)")), HasSubstr("HOROVOD_RANK=7"));
}

// Any numbers of tasks on any nodes: every task is somewhere, and those of one local rank are numbered without gaps.
TEST(Scheduler, PlacesOfRandomSlurmStepsFitTogether) {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    std::vector<int> tasks(1 + random() % 6);
    for (int& count : tasks) count = static_cast<int>(1 + random() % 5);
    int size = std::accumulate(tasks.begin(), tasks.end(), 0), rank = 0;
    if (size == 1) continue;
    std::map<int, int> seen;  // by local rank: tasks so far
    for (size_t node = 0; node < tasks.size(); ++node)
      for (int local = 0; local < tasks[node]; ++local) {
        Config config = config_of(slurm(rank, size, local, static_cast<int>(node), joined(tasks, ",")));
        auto at_this_place = [&](int count) { return count > local; };
        auto cross_size = std::count_if(tasks.begin(), tasks.end(), at_this_place);
        EXPECT_EQ(place_of(config),
                  (Place{rank, size, local, tasks[node], seen[local]++, static_cast<int>(cross_size)}))
            << joined(tasks, ",");
        ++rank;
      }
  }
}

}  // namespace
}  // namespace hvd
