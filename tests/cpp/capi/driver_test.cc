// The elastic driver through the C ABI: every event and every action gets through, and mistakes are named. What it
// decides is tested in tests/cpp/elastic.
#include <gmock/gmock.h>

#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "horovod/horovod.h"

namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

struct Destroy {
  void operator()(hvd_driver* driver) const { hvd_driver_destroy(driver); }
};
using DriverOwner = std::unique_ptr<hvd_driver, Destroy>;

hvd_driver_settings settings_for(int32_t min_np) {
  hvd_driver_settings settings{};
  settings.struct_size = sizeof settings;
  settings.min_np = min_np;
  return settings;
}

DriverOwner create(const hvd_driver_settings& settings, double now) {
  hvd_driver* driver = nullptr;
  EXPECT_EQ(hvd_driver_create(&settings, now, &driver), HVD_OK) << hvd_last_error();
  return DriverOwner(driver);
}

// Why a call was refused; empty if it was not.
std::string refusal(hvd_code code) { return code == HVD_INVALID_ARGUMENT ? hvd_last_error() : ""; }

std::string refused_settings(const hvd_driver_settings& settings) {
  hvd_driver* driver = nullptr;
  std::string text = refusal(hvd_driver_create(&settings, 0, &driver));
  EXPECT_EQ(driver, nullptr);
  return text;
}

std::string text_of(const hvd_driver_action& action) {
  std::string worker = std::to_string(action.worker);
  switch (static_cast<hvd_driver_action_kind>(action.kind)) {
    case HVD_DRIVER_START: return "start " + worker + " " + action.host + "/" + std::to_string(action.slot);
    case HVD_DRIVER_STOP: return "stop " + worker;
    case HVD_DRIVER_NOTIFY: return "notify " + worker + ": " + std::to_string(action.change);
    case HVD_DRIVER_ASSIGN:
      return "assign " + worker + "@" + action.host + " generation " + std::to_string(action.generation) + ": " +
             std::to_string(action.rank) + "/" + std::to_string(action.size) + " local " +
             std::to_string(action.local_rank) + "/" + std::to_string(action.local_size) + " cross " +
             std::to_string(action.cross_rank) + "/" + std::to_string(action.cross_size);
    case HVD_DRIVER_LEAVE: return "leave " + worker + ": " + action.text;
    case HVD_DRIVER_SAY: return "say " + std::to_string(action.level) + ": " + action.text;
    case HVD_DRIVER_FAIL: return std::string("fail: ") + action.text;
    case HVD_DRIVER_FINISH: return "finish " + std::to_string(action.exit_code);
  }
  return "unknown kind " + std::to_string(action.kind);
}

// A job with a clock that the test advances; log messages are kept separately.
class DriverJob {
 public:
  explicit DriverJob(const hvd_driver_settings& settings) : driver_(create(settings, now)) {}

  hvd_driver* get() { return driver_.get(); }

  std::vector<std::string> after(hvd_code code) {
    EXPECT_EQ(code, HVD_OK) << hvd_last_error();
    std::vector<std::string> done;
    hvd_driver_action action{};
    action.struct_size = sizeof action;
    while (hvd_driver_next_action(get(), &action) == 1) {
      EXPECT_EQ(action.struct_size, sizeof action);
      if (action.kind == HVD_DRIVER_NOTIFY) timestamps.push_back(action.timestamp);
      (action.kind == HVD_DRIVER_SAY ? said : done).push_back(text_of(action));
    }
    return done;
  }

  std::vector<std::string> hosts(std::vector<const char*> names, std::vector<int32_t> slots) {
    return after(
        hvd_driver_hosts_discovered(get(), now, names.data(), slots.data(), static_cast<int32_t>(names.size())));
  }
  std::vector<std::string> ready(int64_t worker, int32_t lost_rank = -1) {
    return after(hvd_driver_worker_ready(get(), now, worker, lost_rank));
  }
  std::vector<std::string> exits(int64_t worker, int32_t code, int32_t signal = 0) {
    return after(hvd_driver_worker_exited(get(), now, worker, code, signal));
  }
  std::vector<std::string> pass_to_timer() {
    double left = -1;
    EXPECT_EQ(hvd_driver_next_timer(get(), now, &left), HVD_OK);
    EXPECT_GT(left, 0);
    now += left;
    return after(hvd_driver_timer(get(), now));
  }

  double now = 1.7e9;  // as a caller with the time since 1970 has it: no finer than a quarter of a microsecond
  std::vector<std::string> said;
  std::vector<double> timestamps;

 private:
  DriverOwner driver_;
};

TEST(DriverAbi, AJobFromItsStartToItsEnd) {
  hvd_driver_settings settings = settings_for(1);
  settings.np = 2;
  DriverJob job(settings);
  EXPECT_THAT(hvd_driver_waiting_for(job.get()), HasSubstr("2 slots"));
  EXPECT_THAT(job.hosts({"a", "b"}, {1, 1}), ElementsAre("start 1 a/0", "start 2 b/0"));
  EXPECT_THAT(job.said, Contains("say 2: hosts: added a:1, added b:1"));
  EXPECT_THAT(job.ready(2), ElementsAre());
  EXPECT_THAT(job.ready(1), ElementsAre("assign 1@a generation 1: 0/2 local 0/1 cross 0/2",
                                        "assign 2@b generation 1: 1/2 local 0/1 cross 1/2"));
  EXPECT_STREQ(hvd_driver_waiting_for(job.get()), "");

  EXPECT_THAT(job.exits(2, 0, 9), ElementsAre());
  EXPECT_THAT(job.said.back(), StartsWith("say 3: worker 2 (rank 1, host b) was killed by signal 9"));
  EXPECT_STREQ(hvd_driver_waiting_for(job.get()), "worker 1 (rank 0, host a) to ask for the next place");
  EXPECT_THAT(job.ready(1), ElementsAre("assign 1@a generation 2: 0/1 local 0/1 cross 0/1"));
  EXPECT_THAT(job.pass_to_timer(), ElementsAre("start 3 b/0")) << "once the host has rested";
  EXPECT_THAT(job.ready(3), ElementsAre("notify 1: 2"));
  EXPECT_THAT(job.ready(1), ElementsAre("assign 1@a generation 3: 0/2 local 0/1 cross 0/2",
                                        "assign 3@b generation 3: 1/2 local 0/1 cross 1/2"));

  EXPECT_THAT(job.exits(1, 0), ElementsAre());
  EXPECT_EQ(hvd_driver_finished(job.get()), 0);
  EXPECT_THAT(job.exits(3, 0), ElementsAre("finish 0"));
  EXPECT_EQ(hvd_driver_finished(job.get()), 1);
  EXPECT_THAT(job.hosts({"c"}, {1}), ElementsAre()) << "nothing comes after the end";
}

TEST(DriverAbi, EveryOtherEventIsHeard) {
  hvd_driver_settings settings = settings_for(1);
  settings.np = 3;
  DriverJob job(settings);
  job.hosts({"a", "b", "c", "d"}, {1, 1, 1, 1});
  EXPECT_THAT(job.after(hvd_driver_start_failed(job.get(), job.now, 4, "no image")), ElementsAre());
  EXPECT_THAT(job.said.back(), StartsWith("say 3: worker 4 (host d) could not be started: no image"));
  job.hosts({"a", "b", "c"}, {1, 1, 1});
  job.ready(1);
  job.ready(2);
  EXPECT_EQ(job.ready(3).size(), 3u);

  EXPECT_THAT(job.after(hvd_driver_worker_leaving(job.get(), job.now, 2, nullptr)),
              ElementsAre("notify 1: 1", "notify 2: 1", "notify 3: 1"));
  EXPECT_THAT(job.said, Contains(HasSubstr("will leave: no reason was given")));
  EXPECT_THAT(job.ready(2), ElementsAre(StartsWith("leave 2: ")));
  EXPECT_THAT(job.ready(1, 2), ElementsAre()) << "rank 2 is accused of silence";
  EXPECT_THAT(job.pass_to_timer(), Contains("stop 3"));
  EXPECT_THAT(job.after(hvd_driver_host_lost(job.get(), job.now, "c", "unplugged")), ElementsAre());
  EXPECT_THAT(job.said, Contains("say 3: host c is lost: unplugged"));
  EXPECT_THAT(job.after(hvd_driver_stop(job.get(), job.now, "by hand", 7)),
              ElementsAre("fail: by hand", "stop 1", "stop 2"));
  job.exits(1, 0, 15);
  EXPECT_THAT(job.exits(2, 0), ElementsAre("finish 7"));
}

TEST(DriverAbi, NoticesCarryTheTimeOfTheWall) {
  DriverJob job(settings_for(1));
  double before = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  job.hosts({"a"}, {1});
  job.ready(1);
  job.hosts({"a"}, {2});
  EXPECT_THAT(job.ready(2), ElementsAre("notify 1: 2"));
  ASSERT_EQ(job.timestamps.size(), 1u);
  EXPECT_NEAR(job.timestamps[0], before, 60) << "whatever clock the caller has";
}

TEST(DriverAbi, SettingsReachTheDriver) {
  hvd_driver_settings settings = settings_for(1);
  settings.max_np = 2;
  settings.reset_limit = HVD_NO_RESETS;
  DriverJob job(settings);
  EXPECT_THAT(job.hosts({"a"}, {3}), ElementsAre("start 1 a/0", "start 2 a/1"));
  job.ready(1);
  job.ready(2);
  job.exits(2, 1);
  EXPECT_THAT(job.ready(1), ElementsAre(StartsWith("fail: the reset limit of 0 is reached"), "stop 1"));

  settings = settings_for(3);
  settings.elastic_timeout = 5;
  DriverJob poor(settings);
  EXPECT_THAT(poor.hosts({"a"}, {1}), ElementsAre("start 1 a/0"));
  poor.ready(1);
  EXPECT_THAT(poor.pass_to_timer(), ElementsAre("fail: waited 5 s for 3 slots: 1 slots are listed (a:1)", "stop 1"));
}

TEST(DriverAbi, ACallerMayBeOlderThanTheLibrary) {
  hvd_driver_settings settings = settings_for(2);
  settings.max_np = 1;  // not read
  settings.struct_size = offsetof(hvd_driver_settings, max_np);
  DriverJob job(settings);
  const char* hosts[] = {"a"};
  const int32_t slots[] = {1};
  ASSERT_EQ(hvd_driver_hosts_discovered(job.get(), job.now, hosts, slots, 1), HVD_OK);
  hvd_driver_action action;
  std::memset(&action, 0x55, sizeof action);
  action.struct_size = offsetof(hvd_driver_action, generation);
  ASSERT_EQ(hvd_driver_next_action(job.get(), &action), 1);
  EXPECT_EQ(action.worker, 0) << "something is said first";
  EXPECT_EQ(action.generation, 0x5555555555555555) << "not part of the older struct";
}

TEST(DriverAbi, TheLibrarysOwnClockWillDo) {
  hvd_driver_settings settings = settings_for(1);
  DriverOwner driver = create(settings, HVD_OWN_CLOCK);
  double left = 0;
  ASSERT_EQ(hvd_driver_next_timer(driver.get(), HVD_OWN_CLOCK, &left), HVD_OK) << hvd_last_error();
  EXPECT_GT(left, 0) << "until it gives up waiting for hosts";
  EXPECT_LT(left, 601);
  EXPECT_EQ(hvd_driver_timer(driver.get(), HVD_OWN_CLOCK), HVD_OK);
  EXPECT_THAT(refusal(hvd_driver_timer(driver.get(), 3)), HasSubstr("was created with HVD_OWN_CLOCK"));
}

TEST(DriverAbi, WhoeverWaitsForTheTimerArrives) {
  hvd_driver_settings settings = settings_for(1);
  settings.elastic_timeout = 5;
  for (int i = 0; i < 1000; i++) {
    double now = 1.7e9 + i * 0.1234567;
    DriverOwner driver = create(settings, now);
    double left = 0;
    ASSERT_EQ(hvd_driver_next_timer(driver.get(), now, &left), HVD_OK);
    ASSERT_EQ(hvd_driver_timer(driver.get(), now + left), HVD_OK);
    ASSERT_EQ(hvd_driver_finished(driver.get()), 1) << "waited in vain for hosts, and failed; begun at " << now;
  }
}

TEST(DriverAbi, ATimerMayNeverCome) {
  DriverJob job(settings_for(1));
  job.hosts({"a"}, {1});
  job.ready(1);
  job.exits(1, 0);
  double left = 0;
  ASSERT_EQ(hvd_driver_next_timer(job.get(), job.now, &left), HVD_OK);
  EXPECT_EQ(left, -1);
}

TEST(DriverAbiMistakes, InSettingsAreNamed) {
  hvd_driver* driver = nullptr;
  hvd_driver_settings good = settings_for(2);
  EXPECT_EQ(refusal(hvd_driver_create(nullptr, 0, &driver)), "the settings are NULL");
  EXPECT_THAT(refusal(hvd_driver_create(&good, 0, nullptr)), HasSubstr("NULL"));
  EXPECT_THAT(refusal(hvd_driver_create(&good, -2, &driver)), EndsWith("not -2"));
  EXPECT_THAT(refusal(hvd_driver_create(&good, 1e10, &driver)), HasSubstr("2^32"));
  EXPECT_THAT(refusal(hvd_driver_create(&good, std::nan(""), &driver)), EndsWith("not nan"));

  hvd_driver_settings bad = good;
  bad.struct_size = 0;
  EXPECT_EQ(refused_settings(bad), "hvd_driver_settings.struct_size is not set");
  EXPECT_THAT(refused_settings(settings_for(0)), HasSubstr("at least 1, not 0"));
  bad = good;
  bad.max_np = 1;
  EXPECT_THAT(refused_settings(bad), HasSubstr("could never start"));
  bad = good;
  bad.reset_limit = -2;
  EXPECT_THAT(refused_settings(bad), EndsWith("it is -2"));
  bad = good;
  bad.elastic_timeout = -1;
  EXPECT_EQ(refused_settings(bad), "elastic_timeout must not be negative, it is -1");
  bad = good;
  bad.start_timeout = std::nan("");
  EXPECT_THAT(refused_settings(bad), StartsWith("start_timeout"));
  bad = good;
  bad.cooldown_lower = 100;
  EXPECT_THAT(refused_settings(bad), HasSubstr("100 60: the first must be more than 0 and at most the second"));
  good.elastic_timeout = good.cooldown_upper = std::numeric_limits<double>::infinity();
  create(good, 0);
}

TEST(DriverAbiMistakes, InEventsAreNamedAndChangeNothing) {
  DriverJob job(settings_for(1));
  hvd_driver* driver = job.get();
  const char* hosts[] = {"a", "a", ""};
  const int32_t slots[] = {1, 1, -1};
  EXPECT_EQ(refusal(hvd_driver_hosts_discovered(driver, job.now, hosts, slots, 2)), "host a is listed twice");
  EXPECT_EQ(refusal(hvd_driver_hosts_discovered(driver, job.now, hosts + 2, slots, 1)), "host 1 of 1 has no name");
  EXPECT_EQ(refusal(hvd_driver_hosts_discovered(driver, job.now, hosts, slots + 2, 1)), "host a cannot have -1 slots");
  EXPECT_THAT(refusal(hvd_driver_hosts_discovered(driver, job.now, hosts, slots, -1)), EndsWith("it is -1"));
  EXPECT_THAT(refusal(hvd_driver_hosts_discovered(driver, job.now, nullptr, slots, 1)), HasSubstr("NULL"));
  EXPECT_THAT(refusal(hvd_driver_timer(driver, HVD_OWN_CLOCK)), HasSubstr("with a time of the caller's"));
  EXPECT_THAT(refusal(hvd_driver_worker_ready(driver, job.now, 1, -1)), StartsWith("there is no worker 1:"));
  EXPECT_THAT(refusal(hvd_driver_host_lost(driver, job.now, nullptr, "")), HasSubstr("no name"));

  EXPECT_THAT(job.hosts({"a"}, {1}), ElementsAre("start 1 a/0"));
  EXPECT_THAT(refusal(hvd_driver_worker_exited(driver, job.now, 0, 0, 0)), StartsWith("there is no worker 0:"));
  EXPECT_THAT(refusal(hvd_driver_start_failed(driver, job.now, 2, "")), StartsWith("there is no worker 2:"));
  EXPECT_THAT(refusal(hvd_driver_worker_leaving(driver, job.now, -1, "")), StartsWith("there is no worker -1:"));
  EXPECT_THAT(refusal(hvd_driver_worker_exited(driver, job.now, 1, 0, -9)), EndsWith("not -9"));
  EXPECT_THAT(refusal(hvd_driver_worker_ready(driver, job.now, 1, -2)), EndsWith("not -2"));
  EXPECT_THAT(job.ready(1), ElementsAre(StartsWith("assign 1@a generation 1")));
}

TEST(DriverAbiMistakes, WithoutADriverOrAPlaceForTheAnswer) {
  EXPECT_EQ(refusal(hvd_driver_timer(nullptr, 0)), "the driver is NULL");
  EXPECT_EQ(refusal(hvd_driver_worker_ready(nullptr, 0, 1, -1)), "the driver is NULL");
  EXPECT_EQ(hvd_driver_finished(nullptr), -HVD_INVALID_ARGUMENT);
  EXPECT_EQ(hvd_driver_next_action(nullptr, nullptr), -HVD_INVALID_ARGUMENT);
  EXPECT_STREQ(hvd_driver_waiting_for(nullptr), "");
  hvd_driver_destroy(nullptr);

  DriverJob job(settings_for(1));
  EXPECT_THAT(refusal(hvd_driver_next_timer(job.get(), job.now, nullptr)), EndsWith("NULL"));
  hvd_driver_action action{};
  EXPECT_EQ(hvd_driver_next_action(job.get(), &action), -HVD_INVALID_ARGUMENT);
  EXPECT_STREQ(hvd_last_error(), "hvd_driver_action.struct_size is not set");
}

}  // namespace
