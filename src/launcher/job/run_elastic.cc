#include "launcher/job/run_elastic.h"

#include <fmt/core.h>
#include <unistd.h>

#include <chrono>
#include <random>

#include "launcher/fleet/muster.h"
#include "launcher/job/elastic_job.h"
#include "launcher/processes/process.h"
#include "model/config.h"

namespace hvd::launcher {
namespace {

elastic::Settings settings_of(const Options& options, double start_timeout) {
  double timeout = options.elastic_timeout
                       ? *options.elastic_timeout
                       : seconds_for_workers(options, "HOROVOD_ELASTIC_TIMEOUT", Config().elastic_timeout);
  elastic::Settings settings;
  settings.np = options.num_proc;
  settings.min_np = options.min_num_proc.value_or(options.num_proc);
  settings.max_np = options.max_num_proc;
  settings.reset_limit = options.reset_limit;
  settings.elastic_timeout = seconds(timeout);
  settings.start_timeout = seconds(start_timeout);
  if (options.blacklist_cooldown)
    settings.back_off = {seconds(options.blacklist_cooldown->first), seconds(options.blacklist_cooldown->second)};
  settings.seed = std::random_device{}();
  std::chrono::duration<double> wall = std::chrono::system_clock::now().time_since_epoch();
  settings.epoch_offset = wall.count() - seconds_of(Clock::now().time_since_epoch());
  return settings;
}

int failed(Screen& screen, const Status& status) {
  screen.say(status.message());
  screen.set_status("");
  screen.flush();
  return 1;
}

// Agents that come by themselves are the hosts of the job.
Result<std::vector<Contact>> await_agents(Muster& muster, const Options& options, const Key& key) {
  auto contacts = muster.await_agents(key, options.start_timeout ? muster.deadline() : kNever);
  if (muster.stop_signal() != 0)
    return Status(Code::aborted, fmt::format("got {}; nothing was started", signal_name(muster.stop_signal())));
  if (!contacts.ok() || contacts->size() == static_cast<size_t>(*options.agents)) return contacts;
  return Status(Code::timed_out, fmt::format("{} of {} agents came within {:.0f} s (--start-timeout)", contacts->size(),
                                             *options.agents, muster.start_timeout()));
}

}  // namespace

int run_elastic_job(const Options& options, Signals& signals) {
  Screen screen;
  Muster muster(options, signals, screen);
  auto key = key_of_job(options);
  if (!key.ok()) return failed(screen, key.status());
  std::vector<Host> hosts = options.hosts;
  std::vector<Contact> contacts;
  if (options.agents) {
    auto came = await_agents(muster, options, *key);
    if (!came.ok()) {
      int code = failed(screen, came.status());
      return muster.stop_signal() != 0 ? 128 + muster.stop_signal() : code;
    }
    contacts = std::move(*came);
    for (Contact& contact : contacts) {
      int even = (options.num_proc + *options.agents - 1) / *options.agents;
      contact.host.slots = options.slots_per_host.value_or(even);
      hosts.push_back(contact.host);
    }
  }
  elastic::Settings settings = settings_of(options, muster.start_timeout());
  if (Status status = elastic::check(settings); !status.ok()) return failed(screen, status);
  auto lines = WorkerLines::create();
  if (!lines.ok()) return failed(screen, lines.status());
  auto meeting = meet_on_several_hosts(options, *key, (*lines)->door());
  if (!meeting.ok()) return failed(screen, meeting.status());
  ElasticJob job({.options = options,
                  .meeting = *meeting,
                  .lines = **lines,
                  .screen = screen,
                  .signals = signals,
                  .start_timeout = muster.start_timeout(),
                  .settings = settings},
                 std::move(hosts), std::move(contacts));
  return job.run();
}

}  // namespace hvd::launcher
