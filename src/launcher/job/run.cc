#include "launcher/job/run.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>

#include "launcher/agents/contact.h"
#include "launcher/agents/remote_host.h"
#include "launcher/fleet/muster.h"
#include "launcher/job/job.h"
#include "launcher/job/run_elastic.h"
#include "launcher/output/screen.h"
#include "launcher/processes/process.h"
#include "launcher/processes/signals.h"
#include "launcher/workers/binding.h"
#include "launcher/workers/crew.h"
#include "launcher/workers/environment.h"
#include "launcher/workers/meeting.h"
#include "model/config.h"

namespace hvd::launcher {
namespace {

constexpr double kSilences = 2;  // the ranks of a silent host are noticed first, by their peers

// Everything that a job needs, put together step by step.
class Run {
 public:
  Run(const Options& options, Signals signals)
      : options_(options), signals_(std::move(signals)), muster_(options, signals_, screen_) {}

  int run(std::vector<Slot> slots) {
    auto key = key_of_job(options_);
    if (!key.ok()) return failed(key.status());
    std::vector<Host> hosts = options_.hosts;
    Result<std::vector<Contact>> contacts = std::vector<Contact>();
    if (options_.agents) {
      contacts = await_agents(*key);
      if (contacts.ok()) {
        auto assigned = assign_to(*contacts, hosts);
        if (!assigned.ok()) return failed(assigned.status());
        slots = std::move(*assigned);
      }
    } else {
      std::erase_if(hosts, [&](const Host& host) { return !has_slot(slots, host); });
      contacts = call_hosts(hosts);
    }
    if (int stop = muster_.stop_signal(); stop != 0) {
      (void)failed(Status(Code::aborted, fmt::format("got {}; nothing was started", signal_name(stop))));
      return 128 + stop;
    }
    if (!contacts.ok()) return failed(contacts.status());
    auto meeting = contacts->empty() ? meet_on_this_machine(options_, *key) : meet_on_several_hosts(options_, *key);
    if (!meeting.ok()) return failed(meeting.status());
    return run_on(hosts, slots, std::move(*contacts), *meeting);
  }

 private:
  static bool has_slot(const std::vector<Slot>& slots, const Host& host) {
    return std::any_of(slots.begin(), slots.end(), [&](const Slot& slot) { return slot.host == host.name; });
  }

  int failed(const Status& status) {
    if (!status.message().empty()) screen_.say(status.message());
    screen_.set_status("");
    for (screen_.flush(); !screen_.is_empty() && signals_.take_stop_signals().empty(); screen_.flush()) {
      screen_.add_to(set_);
      signals_.add_to(set_);
      set_.wait();
    }
    return 1;
  }

  Result<std::vector<Contact>> call_hosts(const std::vector<Host>& hosts) {
    Muster::Reached reached = muster_.call(hosts);
    if (reached.failures.empty()) return std::move(reached.contacts);
    screen_.show(WorkerStream::err, describe(reached.failures, hosts.size()));
    return Status(Code::unknown, "");
  }

  Result<std::vector<Contact>> await_agents(const Key& key) {
    // They are started by hand or by a scheduler: only a time that was asked for counts.
    auto contacts = muster_.await_agents(key, options_.start_timeout ? muster_.deadline() : kNever);
    if (muster_.stop_signal() != 0) return Status(Code::aborted, "");
    if (!contacts.ok() || contacts->size() == static_cast<size_t>(*options_.agents)) return contacts;
    return Status(Code::timed_out, fmt::format("{} of {} agents came within {:.0f} s (--start-timeout)",
                                               contacts->size(), *options_.agents, muster_.start_timeout()));
  }

  // The agents' hosts share the processes evenly, unless --slots-per-host says how many each takes.
  Result<std::vector<Slot>> assign_to(const std::vector<Contact>& contacts, std::vector<Host>& hosts) const {
    hosts.clear();
    int count = static_cast<int>(contacts.size());
    for (int i = 0; i < count; i++) {
      Host host = contacts[static_cast<size_t>(i)].host;
      int even = options_.num_proc / count + (i < options_.num_proc % count ? 1 : 0);
      host.slots = options_.slots_per_host ? *options_.slots_per_host : even;
      hosts.push_back(host);
    }
    return assign(hosts, options_.num_proc);
  }

  int run_on(const std::vector<Host>& hosts, const std::vector<Slot>& slots, std::vector<Contact> contacts,
             const Meeting& meeting) {
    double silence = kSilences * seconds_for_workers(options_, "HOROVOD_SILENCE_SECONDS", Config().silence_time);
    Job job(options_, screen_, signals_);
    for (const Host& host : hosts) {
      auto contact = std::find_if(contacts.begin(), contacts.end(),
                                  [&](const Contact& one) { return one.host.name == host.name; });
      bool is_here = contact == contacts.end();
      Work work = work_for(host, slots, meeting, is_here, is_here ? core_count() : contact->hello.cores);
      job.add_host(host.name, slots, std::move(work), [&](HostEvents& events) -> std::unique_ptr<HostRunner> {
        if (is_here) return std::make_unique<Crew>(events, muster_.strangers());
        return std::make_unique<RemoteHost>(events, std::move(*contact), seconds(silence));
      });
    }
    return job.run();
  }

  Work work_for(const Host& host, const std::vector<Slot>& slots, const Meeting& meeting, bool is_here, int cores) {
    auto first = std::find_if(slots.begin(), slots.end(), [&](const Slot& slot) { return slot.host == host.name; });
    if (first == slots.end()) return {};  // an agent too many, which leaves with the others
    Work work = work_on(host, options_, meeting, directory_, is_here, cores, first->local_size);
    say_threads(work.defaults, host, cores, first->local_size);
    return work;
  }

  // Once, because all hosts are likely to be alike. A worker that has its host for itself gets what it would have had.
  void say_threads(const Variables& defaults, const Host& host, int cores, int local_size) {
    if (has_said_threads_ || local_size < 2 || find_variable(environ, "OMP_NUM_THREADS") != nullptr) return;
    has_said_threads_ = true;
    screen_.say(fmt::format("note: OMP_NUM_THREADS is {} for each of the {} workers on {} ({} cores); set it to choose",
                            defaults[0].second, local_size, host.name, cores));
  }

  const Options& options_;
  Signals signals_;
  Screen screen_;
  PollSet set_;
  Muster muster_;
  std::string directory_ = current_directory();
  bool has_said_threads_ = false;
};

}  // namespace

int run_job(const Options& options, const std::vector<Slot>& slots) {
  adopt_orphans();
  auto signals = Signals::create();
  if (!signals.ok()) {
    fmt::print(stderr, "horovodrun: {}\n", signals.status().message());
    return 1;
  }
  if (is_elastic(options)) return run_elastic_job(options, *signals);
  return Run(options, std::move(*signals)).run(slots);
}

}  // namespace hvd::launcher
