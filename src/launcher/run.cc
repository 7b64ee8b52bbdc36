#include "launcher/run.h"

#include <fmt/core.h>
#include <limits.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <set>

#include "launcher/agents/agent_door.h"
#include "launcher/agents/contact.h"
#include "launcher/agents/remote_host.h"
#include "launcher/job.h"
#include "launcher/meeting.h"
#include "launcher/output/screen.h"
#include "launcher/signals.h"
#include "launcher/ssh/ssh.h"
#include "launcher/ssh/ssh_contacts.h"
#include "launcher/workers/binding.h"
#include "launcher/workers/crew.h"
#include "launcher/workers/environment.h"
#include "launcher/workers/process.h"

namespace hvd {
namespace {

constexpr double kSilence = 5, kStartTimeout = 30;  // seconds, as model/config.cc has them
constexpr double kSilences = 2;                     // the ranks of a silent host are noticed first, by their peers

// A number in seconds that the user has given to the workers too.
double seconds_from(const Options& options, std::string_view name, double otherwise) {
  const char* inherited = find_variable(environ, name);
  std::string_view text = inherited ? inherited : "";
  for (const auto& [variable, value] : options.variables)
    if (variable == name) text = value;
  double value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  bool is_number = !text.empty() && error == std::errc() && end == text.data() + text.size() && value > 0;
  return is_number ? value : otherwise;
}

std::string agents_text(int count) { return count == 1 ? "1 agent" : fmt::format("{} agents", count); }

// Everything that a job needs, put together step by step.
class Run {
 public:
  Run(const Options& options, Signals signals) : options_(options), signals_(std::move(signals)) {
    double limit = seconds_from(options, "HOROVOD_START_TIMEOUT", kStartTimeout);
    start_timeout_ = options.start_timeout ? *options.start_timeout : limit;
    std::array<char, PATH_MAX> directory{};
    if (::getcwd(directory.data(), directory.size()) != nullptr) directory_ = directory.data();
  }

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
    if (stop_signal_ != 0) {
      (void)failed(Status(Code::aborted, fmt::format("got {}; nothing was started", signal_name(stop_signal_))));
      return 128 + stop_signal_;
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

  TimePoint deadline() const { return after(Clock::now(), seconds(start_timeout_)); }

  // One round of an event loop; false: a signal asks us to stop.
  template <class Contacts>
  bool wait_for(Contacts& contacts) {
    contacts.add_to(set_);
    screen_.add_to(set_);
    signals_.add_to(set_);
    set_.wait();
    signals_.reap([&](pid_t pid, int status) { contacts.on_reaped(pid, status); });
    contacts.look();
    auto stops = signals_.take_stop_signals();
    if (!stops.empty()) stop_signal_ = stops[0];
    return stops.empty();
  }

  Result<std::vector<Contact>> call_hosts(const std::vector<Host>& hosts) {
    std::vector<Host> remote;
    for (const Host& host : hosts)
      if (!is_local(host)) remote.push_back(host);
    if (remote.empty()) return std::vector<Contact>();
    std::error_code error;
    std::string path = std::filesystem::read_symlink("/proc/self/exe", error);
    Ssh ssh = ssh_of(options_, environ, static_cast<int>(start_timeout_));
    SshContacts contacts(ssh, remote, path, deadline(), strangers_);
    while (!contacts.is_done()) {
      screen_.set_status(
          fmt::format("horovodrun: contacting hosts: {} of {} answer", contacts.reached(), remote.size()));
      if (!wait_for(contacts)) return Status(Code::aborted, "");
    }
    if (contacts.failures().empty()) return contacts.take_contacts();
    screen_.show(WorkerStream::err, describe(contacts.failures(), remote.size()));
    return Status(Code::unknown, "");
  }

  Result<std::vector<Contact>> await_agents(const Key& key) {
    auto door = AgentDoor::open(options_, key, static_cast<size_t>(*options_.agents));
    if (!door.ok()) return door.status();
    screen_.say(fmt::format("waiting for {} at {}", agents_text(*options_.agents), (*door)->addresses()));
    TimePoint until = options_.start_timeout ? deadline() : kNever;  // they are started by hand or by a scheduler
    while (!(*door)->is_done()) {
      screen_.set_status(
          fmt::format("horovodrun: waiting for agents: {} of {} came", (*door)->reached(), *options_.agents));
      set_.wake_at(until);
      if (!wait_for(**door)) return Status(Code::aborted, "");
      if (Clock::now() >= until)
        return Status(Code::timed_out, fmt::format("{} of {} agents came within {:.0f} s (--start-timeout)",
                                                   (*door)->reached(), *options_.agents, start_timeout_));
    }
    return (*door)->take_contacts();
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
    Duration silence = seconds(kSilences * seconds_from(options_, "HOROVOD_SILENCE_SECONDS", kSilence));
    Job job(options_, screen_, signals_);
    for (const Host& host : hosts) {
      auto contact = std::find_if(contacts.begin(), contacts.end(),
                                  [&](const Contact& one) { return one.host.name == host.name; });
      bool is_here = contact == contacts.end();
      Work work = work_for(host, slots, meeting, is_here, is_here ? usable_cores() : contact->hello.cores);
      job.add_host(host.name, slots, std::move(work), [&](HostEvents& events) -> std::unique_ptr<HostRunner> {
        if (is_here) return std::make_unique<Crew>(events, strangers_);
        return std::make_unique<RemoteHost>(events, std::move(*contact), silence);
      });
    }
    return job.run();
  }

  Work work_for(const Host& host, const std::vector<Slot>& slots, const Meeting& meeting, bool is_here, int cores) {
    auto first = std::find_if(slots.begin(), slots.end(), [&](const Slot& slot) { return slot.host == host.name; });
    if (first == slots.end()) return {};  // an agent too many, which leaves with the others
    Work work{.command = options_.command, .bind_to = options_.bind_to};
    if (!is_here) {
      work.directory = directory_;
      work.variables = forwarded_variables(environ, host);
    }
    Variables own = job_variables(options_.variables, meeting);
    work.variables.insert(work.variables.end(), own.begin(), own.end());
    work.defaults = thread_defaults(cores, first->local_size);
    say_threads(work.defaults, host, cores, first->local_size);
    return work;
  }

  // Once, because all hosts are likely to be alike; and to a person, not into the output of a program.
  void say_threads(const Variables& defaults, const Host& host, int cores, int local_size) {
    if (has_said_threads_ || find_variable(environ, "OMP_NUM_THREADS") != nullptr) return;
    if (!screen_.is_terminal() && !options_.verbose) return;
    has_said_threads_ = true;
    screen_.say(fmt::format("OMP_NUM_THREADS is {} for each of the {} workers on {} ({} cores); set it to choose",
                            defaults[0].second, local_size, host.name, cores));
  }

  const Options& options_;
  Signals signals_;
  Screen screen_;
  PollSet set_;
  std::set<pid_t> strangers_;
  double start_timeout_ = kStartTimeout;
  std::string directory_;  // where the user is
  int stop_signal_ = 0;
  bool has_said_threads_ = false;
};

}  // namespace

int run_job(const Options& options, const std::vector<Slot>& slots) {
  ::signal(SIGPIPE, SIG_IGN);  // a reader that goes away is seen by write()
  adopt_orphans();
  auto signals = Signals::create();
  if (!signals.ok()) {
    fmt::print(stderr, "horovodrun: {}\n", signals.status().message());
    return 1;
  }
  return Run(options, std::move(*signals)).run(slots);
}

}  // namespace hvd
