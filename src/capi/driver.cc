// The elastic driver behind the C ABI: converts and forwards. See include/horovod/horovod.h and elastic/driver.h.
#include "elastic/driver.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <deque>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "errors.h"
#include "horovod/horovod.h"

struct hvd_driver {
  struct Step {
    hvd_driver_action action{};
    std::string host, text;  // storage for its texts
  };

  hvd::elastic::Driver driver;
  bool own_clock;
  uint64_t last_worker = 0;  // the highest id so far
  std::deque<Step> steps;
  Step shown;  // the step whose texts the caller may read
};

namespace {

using namespace hvd;

constexpr double kLongestSeconds = 4294967296.0;  // two of them fit into a time point

Status wrong(std::string text) { return {Code::invalid_argument, std::move(text)}; }

std::string words(const char* reason) { return reason == nullptr ? "no reason was given" : reason; }

Result<TimePoint> driver_time(bool own_clock, double now) {
  if ((now == HVD_OWN_CLOCK) != own_clock) {
    return wrong(own_clock
                     ? fmt::format("now is {}, but the driver was created with HVD_OWN_CLOCK", now)
                     : std::string("now is HVD_OWN_CLOCK, but the driver was created with a time of the caller's"));
  }
  if (own_clock) return Clock::now();
  if (!(now >= 0 && now < kLongestSeconds))
    return wrong(fmt::format("now must be HVD_OWN_CLOCK, or at least 0 and less than 2^32 seconds, not {}", now));
  return TimePoint(seconds(now));
}

// ---- settings

Status read_seconds(const char* name, double given, Duration& value) {
  if (!(given >= 0)) return wrong(fmt::format("{} must not be negative, it is {}", name, given));
  if (given > 0) value = seconds(std::min(given, kLongestSeconds));
  return {};
}

Status read_settings(const hvd_driver_settings* given, elastic::Settings& settings) {
  if (given == nullptr) return wrong("the settings are NULL");
  if (given->struct_size < offsetof(hvd_driver_settings, max_np))
    return wrong("hvd_driver_settings.struct_size is not set");
  hvd_driver_settings read{};
  std::memcpy(&read, given, std::min<size_t>(given->struct_size, sizeof read));
  if (read.reset_limit < HVD_NO_RESETS)
    return wrong(fmt::format("reset_limit must not be less than HVD_NO_RESETS, it is {}", read.reset_limit));
  settings.min_np = read.min_np;
  settings.np = read.np == 0 ? read.min_np : read.np;
  if (read.max_np != 0) settings.max_np = read.max_np;
  if (read.reset_limit != 0) settings.reset_limit = std::max(read.reset_limit, 0);
  settings.seed = read.seed == 0 ? std::random_device{}() : read.seed;
  Status statuses[] = {read_seconds("elastic_timeout", read.elastic_timeout, settings.elastic_timeout),
                       read_seconds("start_timeout", read.start_timeout, settings.start_timeout),
                       read_seconds("cooldown_lower", read.cooldown_lower, settings.back_off.lower),
                       read_seconds("cooldown_upper", read.cooldown_upper, settings.back_off.upper)};
  for (Status& status : statuses) {
    if (!status.ok()) return std::move(status);
  }
  return check(settings);
}

// ---- actions: one step for each worker of an action

class DriverSteps {
 public:
  explicit DriverSteps(hvd_driver& to) : to_(to) {}

  void operator()(const elastic::StartWorker& each) {
    to_.last_worker = std::max(to_.last_worker, static_cast<uint64_t>(each.id));
    hvd_driver::Step& step = add(HVD_DRIVER_START, each.id);
    step.host = each.host;
    step.action.slot = each.slot;
  }
  void operator()(const elastic::StopWorker& each) { add(HVD_DRIVER_STOP, each.id); }
  void operator()(const elastic::StopAll&) {}  // only static jobs, which this ABI does not support
  void operator()(const elastic::NotifyWorkers& each) {
    for (elastic::WorkerId id : each.ids) {
      hvd_driver::Step& step = add(HVD_DRIVER_NOTIFY, id);
      step.action.change = static_cast<int32_t>(each.change);
      step.action.timestamp = each.timestamp;
    }
  }
  void operator()(const elastic::AssignGeneration& each) {
    for (const elastic::Place& place : each.places) {
      hvd_driver::Step& step = add(HVD_DRIVER_ASSIGN, place.id);
      step.host = place.host;
      step.action.generation = static_cast<int64_t>(each.generation);
      step.action.rank = place.rank;
      step.action.size = place.size;
      step.action.local_rank = place.local_rank;
      step.action.local_size = place.local_size;
      step.action.cross_rank = place.cross_rank;
      step.action.cross_size = place.cross_size;
    }
  }
  void operator()(const elastic::LeaveWorker& each) { add(HVD_DRIVER_LEAVE, each.id).text = each.reason; }
  void operator()(const elastic::Say& each) {
    hvd_driver::Step& step = add(HVD_DRIVER_SAY);
    step.text = each.text;
    step.action.level = static_cast<int32_t>(each.level);
  }
  void operator()(const elastic::Fail& each) { add(HVD_DRIVER_FAIL).text = each.reason; }
  void operator()(const elastic::Finish& each) { add(HVD_DRIVER_FINISH).action.exit_code = each.exit_code; }

 private:
  hvd_driver::Step& add(hvd_driver_action_kind kind, elastic::WorkerId worker = {}) {
    hvd_driver::Step& step = to_.steps.emplace_back();
    step.action.kind = kind;
    step.action.worker = static_cast<int64_t>(worker);
    return step;
  }

  hvd_driver& to_;
};

// ---- events

using EventRead = Result<elastic::Event>;

template <class Read>
hvd_code tell(hvd_driver* driver, double now, Read&& read) {
  return guarded([&]() -> Status {
    if (driver == nullptr) return wrong("the driver is NULL");
    auto time = driver_time(driver->own_clock, now);
    if (!time.ok()) return time.status();
    EventRead event = read();
    if (!event.ok()) return event.status();
    std::vector<elastic::Action> actions;
    driver->driver.on(*event, *time, actions);
    for (const elastic::Action& action : actions) std::visit(DriverSteps(*driver), action);
    return {};
  });
}

// The worker must have been started at some time; it need not be running.
template <class Read>
hvd_code tell_of_worker(hvd_driver* driver, double now, int64_t worker, Read&& read) {
  return tell(driver, now, [&]() -> EventRead {
    if (worker < 1 || static_cast<uint64_t>(worker) > driver->last_worker)
      return wrong(fmt::format("there is no worker {}: HVD_DRIVER_START gives the ids", worker));
    return read(elastic::WorkerId{static_cast<uint64_t>(worker)});
  });
}

EventRead read_hosts(const char* const* hosts, const int32_t* slots, int32_t count) {
  if (count < 0) return wrong(fmt::format("the number of hosts must not be negative, it is {}", count));
  if (count > 0 && (hosts == nullptr || slots == nullptr)) return wrong("the hosts or their slots are NULL");
  elastic::HostsDiscovered event;
  std::set<std::string_view> known;
  for (int32_t i = 0; i < count; i++) {
    if (hosts[i] == nullptr || *hosts[i] == '\0') return wrong(fmt::format("host {} of {} has no name", i + 1, count));
    if (slots[i] < 0) return wrong(fmt::format("host {} cannot have {} slots", hosts[i], slots[i]));
    if (!known.insert(hosts[i]).second) return wrong(fmt::format("host {} is listed twice", hosts[i]));
    event.hosts.push_back({hosts[i], slots[i]});
  }
  return elastic::Event(std::move(event));
}

}  // namespace

extern "C" {

hvd_code hvd_driver_create(const hvd_driver_settings* settings, double now, hvd_driver** driver) {
  return guarded([&]() -> Status {
    if (driver == nullptr) return wrong("the pointer for the driver is NULL");
    *driver = nullptr;
    elastic::Settings read;
    if (Status status = read_settings(settings, read); !status.ok()) return status;
    const bool own_clock = now == HVD_OWN_CLOCK;
    auto time = driver_time(own_clock, now);
    if (!time.ok()) return time.status();
    std::chrono::duration<double> wall = std::chrono::system_clock::now().time_since_epoch();
    read.epoch_offset = wall.count() - seconds_of(time->time_since_epoch());
    *driver = new hvd_driver{.driver = elastic::Driver(read, *time), .own_clock = own_clock};
    return {};
  });
}

void hvd_driver_destroy(hvd_driver* driver) { delete driver; }

hvd_code hvd_driver_hosts_discovered(hvd_driver* driver, double now, const char* const* hosts, const int32_t* slots,
                                     int32_t count) {
  return tell(driver, now, [&] { return read_hosts(hosts, slots, count); });
}

hvd_code hvd_driver_worker_ready(hvd_driver* driver, double now, int64_t worker, int32_t lost_rank) {
  return tell_of_worker(driver, now, worker, [&](elastic::WorkerId id) -> EventRead {
    if (lost_rank < -1) return wrong(fmt::format("lost_rank must be a rank, or -1 for none, not {}", lost_rank));
    elastic::WorkerReady event{.id = id};
    if (lost_rank >= 0) event.lost_rank = lost_rank;
    return elastic::Event(event);
  });
}

hvd_code hvd_driver_worker_exited(hvd_driver* driver, double now, int64_t worker, int32_t exit_code, int32_t signal) {
  return tell_of_worker(driver, now, worker, [&](elastic::WorkerId id) -> EventRead {
    if (signal < 0) return wrong(fmt::format("a signal has a number above 0, or is 0 for none, not {}", signal));
    return elastic::Event(elastic::WorkerExited{.id = id, .code = exit_code, .signal = signal});
  });
}

hvd_code hvd_driver_worker_leaving(hvd_driver* driver, double now, int64_t worker, const char* reason) {
  return tell_of_worker(driver, now, worker, [&](elastic::WorkerId id) -> EventRead {
    return elastic::Event(elastic::WorkerLeaving{id, words(reason)});
  });
}

hvd_code hvd_driver_start_failed(hvd_driver* driver, double now, int64_t worker, const char* reason) {
  return tell_of_worker(driver, now, worker, [&](elastic::WorkerId id) -> EventRead {
    return elastic::Event(elastic::StartFailed{id, words(reason)});
  });
}

hvd_code hvd_driver_host_lost(hvd_driver* driver, double now, const char* host, const char* reason) {
  return tell(driver, now, [&]() -> EventRead {
    if (host == nullptr || *host == '\0') return wrong("the host that was lost has no name");
    return elastic::Event(elastic::HostLost{host, words(reason)});
  });
}

hvd_code hvd_driver_stop(hvd_driver* driver, double now, const char* reason, int32_t exit_code) {
  return tell(driver, now, [&]() -> EventRead { return elastic::Event(elastic::StopJob{words(reason), exit_code}); });
}

hvd_code hvd_driver_timer(hvd_driver* driver, double now) {
  return tell(driver, now, []() -> EventRead { return elastic::Event(elastic::Timer{}); });
}

int32_t hvd_driver_next_action(hvd_driver* driver, hvd_driver_action* action) {
  return guarded_value([&]() -> Result<int32_t> {
    if (driver == nullptr) return wrong("the driver is NULL");
    if (action == nullptr || action->struct_size < offsetof(hvd_driver_action, worker))
      return wrong("hvd_driver_action.struct_size is not set");
    if (driver->steps.empty()) return 0;
    driver->shown = std::move(driver->steps.front());
    driver->steps.pop_front();
    hvd_driver_action& shown = driver->shown.action;
    shown.struct_size = action->struct_size;
    shown.host = driver->shown.host.c_str();
    shown.text = driver->shown.text.c_str();
    std::memcpy(action, &shown, std::min<size_t>(action->struct_size, sizeof shown));
    return 1;
  });
}

hvd_code hvd_driver_next_timer(const hvd_driver* driver, double now, double* seconds) {
  return guarded([&]() -> Status {
    if (driver == nullptr || seconds == nullptr) return wrong("the driver, or the pointer for the seconds, is NULL");
    auto time = driver_time(driver->own_clock, now);
    if (!time.ok()) return time.status();
    TimePoint timer = driver->driver.next_timer();
    // Adds one microsecond, the resolution of a time since 1970, so that a caller who adds this to `now` has reached
    // the time.
    constexpr Duration spare = std::chrono::microseconds(1);
    *seconds = timer == kNever ? -1 : timer <= *time ? 0 : seconds_of(timer - *time + spare);
    return {};
  });
}

const char* hvd_driver_waiting_for(const hvd_driver* driver) {
  return driver == nullptr ? "" : driver->driver.waiting_for().c_str();
}

int32_t hvd_driver_finished(const hvd_driver* driver) {
  return guarded_value([&]() -> Result<int32_t> {
    if (driver == nullptr) return wrong("the driver is NULL");
    return driver->driver.finished() ? 1 : 0;
  });
}

}  // extern "C"
