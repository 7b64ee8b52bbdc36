#include "model/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "model/plan.h"
#include "model/shared_knobs.h"

namespace hvd {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

using Environment = std::map<std::string, std::string>;

Result<Config> parse(const Environment& environment) {
  return parse_config([&](const char* name) -> const char* {
    auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second.c_str();
  });
}

std::string error_of(const Environment& environment) {
  auto config = parse(environment);
  EXPECT_FALSE(config.ok());
  EXPECT_EQ(config.status().code(), Code::invalid_argument);
  return std::string(config.status().message());
}

TEST(Config, AnEmptyEnvironmentIsAWorldOfOneProcessWithNothingChosen) {
  auto config = parse({});
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config->rank, 0);
  EXPECT_EQ(config->size, 1);
  EXPECT_EQ(config->hostname, "localhost");
  EXPECT_EQ(config->rendezvous_addr, "");
  EXPECT_FALSE(config->fusion_threshold.has_value());
  EXPECT_FALSE(config->cycle_time_ms.has_value());
  EXPECT_FALSE(config->cache_capacity.has_value());
  EXPECT_FALSE(config->one_shot_limit.has_value());
  EXPECT_TRUE(config->stall_check);
  EXPECT_EQ(config->log.level, LogLevel::warning);
}

TEST(Config, EveryKnobReachesItsField) {
  auto parsed = parse({{"HOROVOD_RANK", "5"},
                       {"HOROVOD_SIZE", "8"},
                       {"HOROVOD_LOCAL_RANK", "1"},
                       {"HOROVOD_LOCAL_SIZE", "2"},
                       {"HOROVOD_CROSS_RANK", "3"},
                       {"HOROVOD_CROSS_SIZE", "4"},
                       {"HOROVOD_HOSTNAME", "node-a"},
                       {"HOROVOD_GLOO_RENDEZVOUS_ADDR", "10.0.0.1"},
                       {"HOROVOD_GLOO_RENDEZVOUS_PORT", "4242"},
                       {"_HOROVOD_SECRET_KEY", "00ffAB"},
                       {"HOROVOD_START_TIMEOUT", "7.5"},
                       {"HOROVOD_TLS", "1"},
                       {"_HOROVOD_TLS_IDENTITY", "0a0b"},
                       {"HOROVOD_NETWORK_INTERFACES", "eth1,ib0"},
                       {"HOROVOD_GLOO_IFACE", "eth0,eth1"},
                       {"HOROVOD_FUSION_THRESHOLD", "0"},
                       {"HOROVOD_CYCLE_TIME", "2.5"},
                       {"HOROVOD_CACHE_CAPACITY", "12"},
                       {"HOROVOD_DISABLE_GROUP_FUSION", "1"},
                       {"HOROVOD_DYNAMIC_PROCESS_SETS", "1"},
                       {"HOROVOD_STALL_CHECK_DISABLE", "1"},
                       {"HOROVOD_STALL_CHECK_TIME_SECONDS", "3"},
                       {"HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "4"},
                       {"HOROVOD_COLLECTIVE_TIMEOUT_SECONDS", "5"},
                       {"HOROVOD_SHM_RING_BYTES", "65536"},
                       {"HOROVOD_SHM_CHUNK_BYTES", "128"},
                       {"HOROVOD_SHM_CHUNKS", "3"},
                       {"HOROVOD_ONE_SHOT_LIMIT", "4096"},
                       {"HOROVOD_SPIN_US", "0"},
                       {"HOROVOD_YIELD_US", "0.5"},
                       {"HOROVOD_TIMELINE", "DYNAMIC"},
                       {"HOROVOD_TIMELINE_MARK_CYCLES", "1"},
                       {"HOROVOD_TIMELINE_ALL_RANKS", "1"},
                       {"HOROVOD_AUTOTUNE", "1"},
                       {"HOROVOD_AUTOTUNE_LOG", "/tmp/a,b.csv"},
                       {"HOROVOD_AUTOTUNE_WARMUP_SAMPLES", "0"},
                       {"HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE", "11"},
                       {"HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES", "12"},
                       {"HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE", "0.1"},
                       {"HOROVOD_LOG_LEVEL", "Debug"},
                       {"HOROVOD_LOG_HIDE_TIME", "1"},
                       {"HOROVOD_BACKENDS", "/a/x.so::b.so:"},
                       {"HOROVOD_THREAD_AFFINITY", "6,0"}});
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  const Config& c = *parsed;
  EXPECT_THAT((std::vector<int32_t>{c.rank, c.size, c.local_rank, c.local_size, c.cross_rank, c.cross_size}),
              ElementsAre(5, 8, 1, 2, 3, 4));
  EXPECT_EQ(c.hostname, "node-a");
  EXPECT_EQ(c.rendezvous_addr, "10.0.0.1");
  EXPECT_EQ(c.rendezvous_port, 4242);
  EXPECT_EQ(c.secret_key, "00ffAB");
  EXPECT_EQ(c.start_timeout, 7.5);
  EXPECT_TRUE(c.tls);
  EXPECT_EQ(c.tls_identity, "0a0b");
  EXPECT_THAT(c.network_interfaces, ElementsAre("eth1", "ib0", "eth0"));
  EXPECT_EQ(c.fusion_threshold, 0);
  EXPECT_EQ(c.cycle_time_ms, 2.5);
  EXPECT_EQ(c.cache_capacity, 12);
  EXPECT_TRUE(c.disable_group_fusion);
  EXPECT_TRUE(c.dynamic_process_sets);
  EXPECT_FALSE(c.stall_check);
  EXPECT_EQ(c.stall_warning_time, 3);
  EXPECT_EQ(c.stall_shutdown_time, 4);
  EXPECT_EQ(c.collective_timeout, 5);
  EXPECT_EQ(c.shm_ring_bytes, 65536);
  EXPECT_EQ(c.shm_chunk_bytes, 128);
  EXPECT_EQ(c.shm_chunks, 3);
  EXPECT_EQ(c.one_shot_limit, 4096);
  EXPECT_EQ(c.spin_us, 0);
  EXPECT_EQ(c.yield_us, 0.5);
  EXPECT_EQ(c.timeline, "DYNAMIC");
  EXPECT_TRUE(c.timeline_mark_cycles);
  EXPECT_TRUE(c.timeline_all_ranks);
  EXPECT_TRUE(c.autotune);
  EXPECT_EQ(c.autotune_log, "/tmp/a,b.csv");
  EXPECT_EQ(c.autotune_warmup_samples, 0);
  EXPECT_EQ(c.autotune_steps_per_sample, 11);
  EXPECT_EQ(c.autotune_bayes_opt_max_samples, 12);
  EXPECT_EQ(c.autotune_gaussian_process_noise, 0.1);
  EXPECT_EQ(c.log.level, LogLevel::debug);
  EXPECT_TRUE(c.log.hide_time);
  EXPECT_THAT(c.backends, ElementsAre("/a/x.so", "b.so"));
  EXPECT_THAT(c.thread_affinity, ElementsAre(6, 0));
}

TEST(Config, ABadNumberIsAnErrorThatNamesVariableValueAndRange) {
  for (const char* value : {"x", "1x", " 1", "0x10", "1.5", "-1", "99999999999999999999999"}) {
    std::string text = error_of({{"HOROVOD_CACHE_CAPACITY", value}});
    EXPECT_THAT(text, HasSubstr(std::string("HOROVOD_CACHE_CAPACITY=") + value));
    EXPECT_THAT(text, HasSubstr("0 to 1000000000"));
  }
  for (const char* value : {"nan", "inf", "1e400", "-0.1", "60001", "1 ms"}) {
    EXPECT_THAT(error_of({{"HOROVOD_CYCLE_TIME", value}}), HasSubstr("0 to 60000"));
  }
  EXPECT_THAT(error_of({{"HOROVOD_SHM_CHUNKS", "9223372036854775807"}}), HasSubstr("1 to 65536"));
  EXPECT_THAT(error_of({{"HOROVOD_GLOO_RENDEZVOUS_PORT", "65536"}}), HasSubstr("-1 to 65535"));
  EXPECT_THAT(error_of({{"HOROVOD_THREAD_AFFINITY", "0,two"}}), HasSubstr("separated by commas"));
}

TEST(Config, SharedMemorySizesAreWholeCacheLines) {
  EXPECT_THAT(error_of({{"HOROVOD_SHM_CHUNK_BYTES", "100"}}), HasSubstr("a multiple of 64"));
  EXPECT_THAT(error_of({{"HOROVOD_SHM_RING_BYTES", "0"}}), HasSubstr("64 to "));
}

TEST(Config, KnobsThatContradictEachOtherAreErrors) {
  EXPECT_EQ(error_of({{"HOROVOD_RANK", "4"}, {"HOROVOD_SIZE", "4"}}),
            "HOROVOD_RANK=4 must be less than HOROVOD_SIZE=4");
  EXPECT_THAT(error_of({{"HOROVOD_LOCAL_RANK", "1"}}), HasSubstr("HOROVOD_LOCAL_SIZE=1"));
  EXPECT_THAT(error_of({{"HOROVOD_CROSS_RANK", "1"}}), HasSubstr("HOROVOD_CROSS_SIZE=1"));
  EXPECT_EQ(error_of({{"HOROVOD_SIZE", "2"}, {"HOROVOD_LOCAL_SIZE", "3"}}),
            "HOROVOD_LOCAL_SIZE=3 must not exceed HOROVOD_SIZE=2");
  EXPECT_EQ(error_of({{"HOROVOD_SIZE", "2"}, {"HOROVOD_CROSS_SIZE", "3"}}),
            "HOROVOD_CROSS_SIZE=3 must not exceed HOROVOD_SIZE=2");
  EXPECT_THAT(error_of({{"HOROVOD_GLOO_RENDEZVOUS_ADDR", "10.0.0.1"}}), HasSubstr("HOROVOD_GLOO_RENDEZVOUS_PORT"));
  EXPECT_THAT(error_of({{"HOROVOD_ONE_SHOT_LIMIT", "128"}, {"HOROVOD_SHM_RING_BYTES", "64"}}),
              HasSubstr("must not exceed HOROVOD_SHM_RING_BYTES=64"));
  EXPECT_THAT(error_of({{"HOROVOD_THREAD_AFFINITY", "3"}, {"HOROVOD_LOCAL_SIZE", "2"}, {"HOROVOD_SIZE", "2"}}),
              HasSubstr("2 local ranks"));
}

TEST(Config, AFlagIsAnIntegerAboveZeroAndTextIsFalse) {
  auto flag = [](const char* value) { return parse({{"HOROVOD_AUTOTUNE", value}})->autotune; };
  EXPECT_TRUE(flag("1"));
  EXPECT_TRUE(flag("2"));
  EXPECT_FALSE(flag("0"));
  EXPECT_FALSE(flag("-1"));
  EXPECT_FALSE(flag("true"));
  EXPECT_TRUE(parse({{"HOROVOD_STALL_CHECK_DISABLE", "yes"}})->stall_check);
}

TEST(Config, ASlipDoesNotSwitchTlsOff) {
  EXPECT_FALSE(parse({{"HOROVOD_TLS", "0"}})->tls);
  for (const char* value : {"true", "on", "2", "-1", "1 "}) {
    EXPECT_THAT(error_of({{"HOROVOD_TLS", value}}), HasSubstr("HOROVOD_TLS="));
  }
}

TEST(Config, AnEmptyValueIsNoValue) {
  auto config = parse({{"HOROVOD_CYCLE_TIME", ""}, {"HOROVOD_SIZE", ""}, {"HOROVOD_HOSTNAME", ""}});
  ASSERT_TRUE(config.ok());
  EXPECT_FALSE(config->cycle_time_ms.has_value());
  EXPECT_EQ(config->hostname, "localhost");
}

TEST(Config, LogLevelsAreReadInAnyCaseAndUnknownOnesAreWarning) {
  auto level = [](const char* value) { return parse({{"HOROVOD_LOG_LEVEL", value}})->log.level; };
  EXPECT_EQ(level("trace"), LogLevel::trace);
  EXPECT_EQ(level("INFO"), LogLevel::info);
  EXPECT_EQ(level("Fatal"), LogLevel::fatal);
  EXPECT_EQ(level("loud"), LogLevel::warning);
  EXPECT_EQ(level("0"), LogLevel::warning);
}

TEST(Config, ABadKeyIsAnErrorThatDoesNotShowIt) {
  for (const char* key : {"abc", "not hex!"}) {
    std::string text = error_of({{"_HOROVOD_SECRET_KEY", key}});
    EXPECT_THAT(text, HasSubstr("_HOROVOD_SECRET_KEY"));
    EXPECT_THAT(text, testing::Not(HasSubstr(key)));
  }
}

TEST(Config, AHeartbeatComesBeforeSilenceCounts) {
  EXPECT_THAT(error_of({{"HOROVOD_HEARTBEAT_SECONDS", "5"}}), HasSubstr("HOROVOD_SILENCE_SECONDS=5"));
  EXPECT_THAT(error_of({{"HOROVOD_HEARTBEAT_SECONDS", "0"}}), HasSubstr("more than 0"));
  EXPECT_TRUE(parse({{"HOROVOD_HEARTBEAT_SECONDS", "5"}, {"HOROVOD_SILENCE_SECONDS", "6"}}).ok());
}

TEST(Config, TheEnvironmentIsReadAtTheCall) {
  ASSERT_EQ(::setenv("HOROVOD_SHM_CHUNKS", "5", 1), 0);
  EXPECT_EQ(config_from_environment()->shm_chunks, 5);
  ::unsetenv("HOROVOD_SHM_CHUNKS");
  EXPECT_EQ(config_from_environment()->shm_chunks, Config{}.shm_chunks);
}

TEST(Knobs, AreDescribedInFullAndOnce) {
  auto knobs = nlohmann::json::parse(knobs_json());
  std::set<std::string> names;
  for (const auto& knob : knobs) {
    EXPECT_TRUE(names.insert(knob.at("name").get<std::string>()).second) << knob;
    EXPECT_FALSE(knob.at("range").get<std::string>().empty()) << knob;
    EXPECT_EQ(knob.at("text").get<std::string>().back(), '.') << knob;
  }
  EXPECT_GT(names.size(), 50u);
}

TEST(Knobs, AreFoundByName) {
  auto samples = knob_facts("HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES");
  ASSERT_TRUE(samples);
  EXPECT_EQ(samples->low, 1);
  EXPECT_EQ(samples->high, 1000);
  EXPECT_FALSE(knob_facts("HOROVOD_NO_SUCH_KNOB"));
}

TEST(Knobs, TheirDefaultsAreValidValues) {
  Environment environment;
  for (const auto& knob : nlohmann::json::parse(knobs_json())) environment[knob.at("name")] = knob.at("default");
  auto config = parse(environment);
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->fusion_threshold, 128 << 20);
  EXPECT_EQ(config->cycle_time_ms, 0);
  EXPECT_EQ(config->cache_capacity, 1024);
  EXPECT_EQ(config->autotune_gaussian_process_noise, 0.8);
  EXPECT_TRUE(config->stall_check);
  EXPECT_EQ(config->log.level, LogLevel::warning);
}

std::string difference(const Environment& a, const Environment& b, Scope scope = Scope::on_host) {
  std::vector<KnobsOf> all{{.ranks = {0}, .knobs = shared_knobs(parse(a).value(), scope)},
                           {.ranks = {1}, .knobs = shared_knobs(parse(b).value(), scope)}};
  return std::string(compare_knobs(all, scope).message());
}

TEST(SharedKnobs, HowRanksWaitIsTheirOwnChoice) {
  EXPECT_EQ(difference({}, {{"HOROVOD_SPIN_US", "0"}, {"HOROVOD_YIELD_US", "7"}, {"HOROVOD_TIMELINE", "here"}}), "");
  EXPECT_EQ(difference({}, {{"HOROVOD_CYCLE_TIME", "5"}, {"HOROVOD_COLLECTIVE_TIMEOUT_SECONDS", "9"}}), "");
}

TEST(SharedKnobs, HowDataAreCutIsNot) {
  for (const char* name : {"HOROVOD_SHM_RING_BYTES", "HOROVOD_SHM_CHUNK_BYTES", "HOROVOD_ONE_SHOT_LIMIT"}) {
    EXPECT_THAT(difference({}, {{name, "65536"}}), testing::HasSubstr(std::string(name) + " is "));
    EXPECT_THAT(difference({}, {{name, "65536"}}), testing::HasSubstr("65536 on rank 1"));
    EXPECT_EQ(difference({}, {{name, "65536"}}, Scope::in_world), "") << name;  // hosts may differ
  }
  EXPECT_THAT(difference({}, {{"HOROVOD_HIERARCHICAL_ALLREDUCE", "0"}}, Scope::in_world),
              testing::HasSubstr("HOROVOD_HIERARCHICAL_ALLREDUCE is 0 on rank 1, 1 on rank 0; set the same value"));
}

TEST(SharedKnobs, ValuesThatMeanTheSameAreTheSame) {
  EXPECT_EQ(difference({}, {{"HOROVOD_ONE_SHOT_LIMIT", std::to_string(Tuning{}.one_shot_limit)}}), "");
  EXPECT_EQ(difference({{"HOROVOD_HIERARCHICAL_ALLREDUCE", "1"}}, {{"HOROVOD_CPU_OPERATIONS", "gloo"}}), "");
  EXPECT_EQ(difference({{"HOROVOD_BACKENDS", "/a/one.so"}}, {{"HOROVOD_BACKENDS", "/b/one.so"}}), "");
  EXPECT_NE(difference({{"HOROVOD_BACKENDS", "/a/one.so"}}, {{"HOROVOD_BACKENDS", "/a/two.so"}}), "");
}

TEST(SharedKnobs, ManyRanksAreCounted) {
  std::vector<KnobsOf> all;
  for (int32_t rank = 0; rank < 100; rank++)
    all.push_back({.ranks = {rank}, .knobs = {{"ONE", rank == 7 ? "a" : "b"}}});
  EXPECT_THAT(std::string(compare_knobs(all, Scope::in_world).message()),
              testing::HasSubstr("ONE is a on rank 7, b on ranks 0, 1, 2, 3, 4, 5, 6, 8 and 91 more"));
}

}  // namespace
}  // namespace hvd
