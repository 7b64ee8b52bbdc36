#include "launcher/job/run.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <random>

#include "launcher/agents/contact.h"
#include "launcher/fleet/muster.h"
#include "launcher/job/job.h"
#include "launcher/output/screen.h"
#include "launcher/processes/process.h"
#include "launcher/processes/signals.h"
#include "launcher/workers/binding.h"
#include "launcher/workers/environment.h"
#include "launcher/workers/meeting.h"
#include "launcher/workers/torch_environment.h"
#include "model/config.h"

namespace hvd::launcher {
namespace {

elastic::Settings settings_of(const Options& options, double start_timeout) {
  if (!is_elastic(options)) return {.is_static = true, .np = options.num_proc};
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

// Assembles everything that a job needs, step by step.
class Run {
 public:
  Run(const Options& options, Signals signals)
      : options_(options), signals_(std::move(signals)), muster_(options, signals_, screen_) {}

  int run() {
    auto key = key_of_job(options_);
    if (!key.ok()) return failed(key.status());
    elastic::Settings settings = settings_of(options_, muster_.start_timeout());
    if (Status status = gather_hosts(*key); !status.ok()) return failed(status);
    if (Status status = elastic::check(settings); !status.ok()) return failed(status);
    auto lines = WorkerLines::create();
    if (!lines.ok()) return failed(lines.status());
    auto meeting = meet(*key, **lines);
    if (!meeting.ok()) return failed(meeting.status());
    if (options_.torch_env) meeting->torch = find_torch_master(hosts_.front().name, is_here(hosts_.front()), *meeting);
    if (settings.is_static) say_threads();
    Job job({.options = options_,
             .meeting = *meeting,
             .lines = **lines,
             .muster = muster_,
             .screen = screen_,
             .signals = signals_,
             .settings = settings,
             .directory = directory_},
            std::move(hosts_), std::move(contacts_));
    return job.run();
  }

 private:
  int failed(const Status& status) {
    if (!status.message().empty()) screen_.say(status.message());
    flush_at_end(screen_, signals_, set_, false);
    return muster_.stop_signal() != 0 ? 128 + muster_.stop_signal() : 1;
  }

  // The hosts of a static job are contacted before anything starts. An elastic job contacts its hosts later.
  Status gather_hosts(const Key& key) {
    hosts_ = options_.hosts;
    Status status;
    if (options_.agents) {
      status = await_agents(key);
    } else if (!is_elastic(options_)) {
      status = use_slots();
      if (status.ok()) status = call_hosts();
    }
    if (int stop = muster_.stop_signal(); stop != 0)
      return {Code::aborted, fmt::format("got {}; nothing was started", signal_name(stop))};
    return status;
  }

  Status call_hosts() {
    Muster::Reached reached = muster_.call(hosts_);
    contacts_ = std::move(reached.contacts);
    if (reached.failures.empty()) return {};
    screen_.show(WorkerStream::err, describe(reached.failures, hosts_.size()));
    return {Code::unknown, ""};
  }

  // Agents that connect on their own are the hosts of the job.
  Status await_agents(const Key& key) {
    // They are started by hand or by a scheduler: there is no time limit unless the user set one.
    auto contacts = muster_.await_agents(key, options_.start_timeout ? muster_.deadline() : kNever);
    if (muster_.stop_signal() != 0) return {};
    if (!contacts.ok()) return contacts.status();
    contacts_ = std::move(*contacts);
    size_t count = contacts_.size();
    if (count < static_cast<size_t>(*options_.agents))
      return {Code::timed_out, fmt::format("{} of {} agents connected within {:.0f} s (--start-timeout)", count,
                                           *options_.agents, muster_.start_timeout())};
    for (size_t i = 0; i < count; i++) {
      contacts_[i].host.slots = options_.slots_per_host.value_or(share_of(static_cast<int>(i)));
      hosts_.push_back(contacts_[i].host);
    }
    if (is_elastic(options_)) return {};
    Status status = use_slots();
    for (size_t i = 0; i < count; i++) contacts_[i].host.slots = hosts_[i].slots;
    return status;
  }

  // The processes are divided evenly among the agents; in an elastic job all agents have the same number of slots.
  int share_of(int agent) const {
    int count = *options_.agents, rest = options_.num_proc % count;
    return options_.num_proc / count + (is_elastic(options_) ? rest > 0 : agent < rest);
  }

  // Gives each host of a static job as many slots as it will have ranks. A host without ranks is not needed, unless it
  // is already connected.
  Status use_slots() {
    auto slots = assign(hosts_, options_.num_proc);
    if (!slots.ok()) return slots.status();
    for (Host& host : hosts_)
      host.slots = static_cast<int>(
          std::count_if(slots->begin(), slots->end(), [&](const Slot& slot) { return slot.host == host.name; }));
    if (!options_.agents) std::erase_if(hosts_, [](const Host& host) { return host.slots == 0; });
    return {};
  }

  Result<Meeting> meet(const Key& key, const WorkerLines& lines) const {
    if (is_elastic(options_)) return meet_on_several_hosts(options_, key, lines.door());
    return contacts_.empty() ? meet_on_this_machine(options_, key) : meet_on_several_hosts(options_, key);
  }

  bool is_here(const Host& host) const {
    return std::none_of(contacts_.begin(), contacts_.end(),
                        [&](const Contact& contact) { return contact.host.name == host.name; });
  }

  // Printed once, because hosts are usually alike. A worker that is alone on its host gets the default number of
  // threads.
  void say_threads() {
    auto host = std::find_if(hosts_.begin(), hosts_.end(), [](const Host& each) { return each.slots > 1; });
    if (host == hosts_.end() || find_variable(environ, "OMP_NUM_THREADS") != nullptr) return;
    auto contact = std::find_if(contacts_.begin(), contacts_.end(),
                                [&](const Contact& each) { return each.host.name == host->name; });
    int cores = contact == contacts_.end() ? core_count() : contact->hello.cores;
    screen_.say(fmt::format("note: OMP_NUM_THREADS is {} for each of the {} workers on {} ({} cores); set it to choose",
                            thread_defaults(cores, host->slots)[0].second, host->slots, host->name, cores));
  }

  const Options& options_;
  Signals signals_;
  Screen screen_;
  PollSet set_;
  Muster muster_;
  std::string directory_ = current_directory();  // before a program can remove it
  std::vector<Host> hosts_;
  std::vector<Contact> contacts_;
};

}  // namespace

int run_job(const Options& options) {
  adopt_orphans();
  auto signals = Signals::create();
  if (!signals.ok()) {
    fmt::print(stderr, "horovodrun: {}\n", signals.status().message());
    return 1;
  }
  return Run(options, std::move(*signals)).run();
}

}  // namespace hvd::launcher
