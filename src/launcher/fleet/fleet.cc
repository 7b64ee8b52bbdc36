#include "launcher/fleet/fleet.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "launcher/workers/environment.h"
#include "model/config.h"

namespace hvd::launcher {
namespace {

constexpr double kSilencesOfHost = 2;  // ranks of a silent host should be detected first, by their peers

}  // namespace

// Forwards events of workers.
struct Fleet::Relay : HostEvents {
  explicit Relay(Fleet& its_fleet) : fleet(its_fleet) {}
  void on_started(int worker, pid_t pid) override { fleet.events_.on_started(worker, pid); }
  void on_not_started(int worker, std::string_view reason) override { fleet.events_.on_not_started(worker, reason); }
  void on_output(int worker, WorkerStream stream, std::string_view bytes) override {
    fleet.events_.on_output(worker, stream, bytes);
  }
  void on_output_end(int worker, WorkerStream stream) override { fleet.events_.on_output_end(worker, stream); }
  void on_report(int worker, const EndReport& report) override { fleet.events_.on_report(worker, report); }
  void on_ended(int worker, const Ended& ended) override { fleet.events_.on_ended(worker, ended); }

  Fleet& fleet;
  bool is_empty = false;
};

struct Fleet::Local : Relay {
  explicit Local(Fleet& its_fleet) : Relay(its_fleet), crew(*this, its_fleet.muster_.strangers()) {}
  void on_observed(uint64_t id, std::string_view json) override { fleet.events_.on_observed("", id, json); }
  void on_notice(std::string_view text) override { fleet.screen_.say(text); }
  void on_empty() override { is_empty = true; }
  void on_lost(std::string_view, bool) override {}

  Crew crew;
  bool has_work = false;
};

// A host with an agent. It is contacted, runs, and is dismissed; it can be lost at any time.
struct Fleet::Remote : Relay {
  Remote(Fleet& its_fleet, Host its_host) : Relay(its_fleet), host(std::move(its_host)) {}
  void on_not_started(int worker, std::string_view reason) override {
    workers.erase(worker);
    Relay::on_not_started(worker, reason);
  }
  void on_ended(int worker, const Ended& ended) override {
    Relay::on_ended(worker, ended);  // which may stop processes that it left behind
    workers.erase(worker);
  }
  void on_observed(uint64_t id, std::string_view json) override { fleet.events_.on_observed(host.name, id, json); }
  void on_notice(std::string_view text) override {
    notice = text;
    fleet.screen_.say(fmt::format("{}: {}", host.name, text));
  }
  void on_empty() override {
    if (!fleet.is_ending_ && !has_left) on_lost(notice, true);  // it stops without being told to
    is_empty = true;
  }
  void on_lost(std::string_view reason, bool is_cause) override {
    bool is_over = is_lost || (is_empty && fleet.is_ending_);  // its connection closes a little early
    is_lost = is_empty = true;
    workers.clear();
    if (!is_over) fleet.events_.on_host_lost(host.name, reason, is_cause);
  }

  Host host;                           // the number of slots is the number of workers that share its cores
  std::unique_ptr<RemoteHost> runner;  // set when its agent has answered
  std::vector<Start> waiting;          // until then
  std::set<int> workers;               // running, or waiting to be started
  std::string notice;                  // the last one
  bool is_lost = false, has_left = false;
};

Fleet::Fleet(FleetEvents& events, const Options& options, const Meeting& meeting, Screen& screen, Muster& muster,
             std::string directory, std::vector<Contact> contacts)
    : events_(events),
      options_(options),
      meeting_(meeting),
      screen_(screen),
      muster_(muster),
      directory_(std::move(directory)),
      local_(std::make_unique<Local>(*this)) {
  for (Contact& contact : contacts) {
    remotes_.emplace(contact.host.name, std::make_unique<Remote>(*this, contact.host));
    take_contact(std::move(contact));
  }
}

Fleet::~Fleet() = default;

void Fleet::start(const Host& host, const Start& start) {
  if (!remotes_.contains(host.name) && is_local(host)) {
    if (!std::exchange(local_->has_work, true))
      local_->crew.set_work(work_on(host, options_, meeting_, directory_, true, core_count(), host.slots));
    return local_->crew.start(start);
  }
  Remote& remote = remote_of(host);
  remote.host.slots = host.slots;
  remote.workers.insert(start.worker);
  if (remote.runner) return remote.runner->start(start);
  remote.waiting.push_back(start);
}

Fleet::Remote& Fleet::remote_of(const Host& host) {
  auto& remote = remotes_[host.name];
  if (remote && remote->is_lost) departing_.push_back(std::exchange(remote, nullptr));
  if (!remote) {
    remote = std::make_unique<Remote>(*this, host);
    to_call_.push_back(host);
  }
  return *remote;
}

void Fleet::stop(int worker) {
  local_->crew.stop(worker);
  for (auto& [name, remote] : remotes_) {
    if (remote->is_lost) continue;
    auto waiting = std::find_if(remote->waiting.begin(), remote->waiting.end(),
                                [&](const Start& start) { return start.worker == worker; });
    if (waiting != remote->waiting.end()) {
      remote->waiting.erase(waiting);
      remote->workers.erase(worker);
      return events_.on_not_started(worker, "it is no longer needed");
    }
    if (remote->runner && remote->workers.contains(worker)) remote->runner->stop(worker);
  }
}

void Fleet::set_listed(std::set<std::string> hosts) { listed_ = std::move(hosts); }

std::string Fleet::last_notice(const std::string& host) const {
  auto remote = remotes_.find(host);
  return remote == remotes_.end() ? "" : remote->second->notice;
}

void Fleet::let_go_of_unlisted() {
  for (auto entry = remotes_.begin(); entry != remotes_.end();) {
    Remote& remote = *entry->second;
    bool is_free = remote.is_lost || (remote.runner && remote.workers.empty() && !listed_.contains(entry->first));
    if (!is_free) {
      ++entry;
      continue;
    }
    if (!remote.is_lost) {
      remote.is_empty = remote.has_left = true;
      remote.runner->leave();
    }
    departing_.push_back(std::move(entry->second));
    entry = remotes_.erase(entry);
  }
  std::erase_if(departing_, [](const auto& remote) { return !remote->runner || remote->runner->has_left(); });
}

void Fleet::call_hosts() {
  if (to_call_.empty()) return;
  calls_.push_back({muster_.begin_call(std::exchange(to_call_, {}))});
}

void Fleet::take_answers(SshContacts& call, size_t& known_failures) {
  for (Contact& contact : call.take_contacts()) take_contact(std::move(contact));
  for (; known_failures < call.failures().size(); known_failures++) {
    const Unreachable& failure = call.failures()[known_failures];
    auto remote = remotes_.find(failure.host);
    if (remote == remotes_.end() || remote->second->runner) continue;
    std::unique_ptr<Remote> gone = std::move(remote->second);
    remotes_.erase(remote);
    for (const Start& start : gone->waiting) events_.on_not_started(start.worker, failure.reason);
  }
}

void Fleet::take_contact(Contact contact) {
  auto entry = remotes_.find(contact.host.name);
  if (entry == remotes_.end() || is_ending_) return;  // not needed; the agent ends when its link closes
  Remote& remote = *entry->second;
  int cores = contact.hello.cores;
  double silence = kSilencesOfHost * seconds_for_workers(options_, "HOROVOD_SILENCE_SECONDS", Config().silence_time);
  remote.runner = std::make_unique<RemoteHost>(remote, std::move(contact), seconds(silence));
  int slots = remote.host.slots;
  remote.runner->set_work(slots == 0 ? Work()
                                     : work_on(remote.host, options_, meeting_, directory_, false, cores, slots));
  for (const Start& start : std::exchange(remote.waiting, {})) remote.runner->start(start);
}

std::vector<std::string> Fleet::observe(const ObserveRequest& request) {
  std::vector<std::string> asked;
  if (local_->has_work) {
    asked.emplace_back("");
    local_->crew.observe(request);
  }
  for (auto& [name, remote] : remotes_) {
    if (!remote->runner || remote->is_lost || remote->has_left) continue;
    asked.push_back(name);
    remote->runner->observe(request);
  }
  return asked;
}

void Fleet::stop_all() {
  if (std::exchange(is_ending_, true)) return;
  local_->crew.stop();
  for (auto& [name, remote] : remotes_) {
    if (remote->runner && !remote->is_empty) remote->runner->stop();
    if (!remote->runner) remote->is_empty = true;
  }
}

void Fleet::kill_all() {
  local_->crew.kill();
  for (auto& [name, remote] : remotes_)
    if (remote->runner && !remote->is_empty) remote->runner->kill();
}

bool Fleet::is_empty() const {
  return local_->is_empty &&
         std::all_of(remotes_.begin(), remotes_.end(), [](const auto& entry) { return entry.second->is_empty; });
}

void Fleet::leave() {
  is_leaving_ = true;
  for (auto& [name, remote] : remotes_)
    if (remote->runner && !remote->runner->has_left() && !std::exchange(remote->has_left, true))
      remote->runner->leave();
}

bool Fleet::has_left() const {
  auto has_left = [](const Remote& remote) { return !remote.runner || remote.runner->has_left(); };
  return std::all_of(remotes_.begin(), remotes_.end(), [&](const auto& entry) { return has_left(*entry.second); }) &&
         std::all_of(departing_.begin(), departing_.end(), [&](const auto& remote) { return has_left(*remote); });
}

void Fleet::hold_output(WorkerStream stream, bool hold) {
  local_->crew.hold_output(stream, hold);
  for (auto& [name, remote] : remotes_)
    if (remote->runner) remote->runner->hold_output(stream, hold);
}

void Fleet::add_to(PollSet& set) {
  call_hosts();
  local_->crew.add_to(set);
  for (auto& [name, remote] : remotes_)
    if (remote->runner) remote->runner->add_to(set);
  for (auto& remote : departing_)
    if (remote->runner) remote->runner->add_to(set);
  for (Call& call : calls_) call.contacts->add_to(set);
}

void Fleet::on_reaped(pid_t pid, int status) {
  local_->crew.on_reaped(pid, status);
  for (auto& [name, remote] : remotes_)
    if (remote->runner) remote->runner->on_reaped(pid, status);
  for (auto& remote : departing_)
    if (remote->runner) remote->runner->on_reaped(pid, status);
  for (Call& call : calls_) call.contacts->on_reaped(pid, status);
  muster_.strangers().erase(pid);  // including those whose owner is gone
}

void Fleet::look() {
  for (Call& call : calls_) {
    call.contacts->look();
    take_answers(*call.contacts, call.failures);
  }
  std::erase_if(calls_, [](const Call& call) { return call.contacts->is_done(); });
  local_->crew.look();
  for (auto& [name, remote] : remotes_)
    if (remote->runner) remote->runner->look();
  for (auto& remote : departing_)
    if (remote->runner) remote->runner->look();
  if (!is_leaving_) let_go_of_unlisted();
}

}  // namespace hvd::launcher
