#include "launcher/agents/remote_host.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>
#include <variant>

namespace hvd::launcher {
namespace {

constexpr Duration kStopMargin = std::chrono::seconds(5);  // for the agent's own work after the grace period
constexpr size_t kMostObserved = 256 << 20;
constexpr int kBeatsPerSilence = 5;
constexpr int kAgentPatience = 6;                         // multiples of the silence limit
constexpr int kMessagesAtOnce = 64;                       // of up to 64 KiB
constexpr Duration kLastWords = std::chrono::seconds(1);  // of an ssh whose connection has ended

template <class... Cases>
struct Match : Cases... {
  using Cases::operator()...;
};
template <class... Cases>
Match(Cases...) -> Match<Cases...>;  // clang 14 does not deduce it

}  // namespace

RemoteHost::RemoteHost(HostEvents& events, Contact contact, Duration silence)
    : events_(events), contact_(std::move(contact)), silence_(silence) {
  listen_for(silence);
}

void RemoteHost::listen_for(Duration silence) { contact_.link->set_silence(silence, silence_ / kBeatsPerSilence); }

void RemoteHost::set_work(const Work& work) {
  contact_.link->send(AgentWork{
      .work = work, .silence = seconds_of(silence_ * kAgentPatience), .beat = seconds_of(silence_ / kBeatsPerSilence)});
}

// An agent sends nothing while it starts a program, which may be on a slow file system.
void RemoteHost::start(const Start& start) {
  if (starting_++ == 0) listen_for(silence_ * kAgentPatience);
  contact_.link->send(AgentStart{start});
}

void RemoteHost::stop(int worker) { contact_.link->send(AgentStop{.worker = worker}); }

void RemoteHost::stop() {
  give_up_ = std::min(give_up_, Clock::now() + kGrace + kStopMargin);
  contact_.link->send(AgentStop{});
}

void RemoteHost::kill() {
  give_up_ = std::min(give_up_, Clock::now() + kStopMargin);
  contact_.link->send(AgentStop{.at_once = true});
}

void RemoteHost::leave() {
  has_left_ = true;
  give_up_ = Clock::now() + kStopMargin;
  contact_.link->send(AgentLeave{});
}

void RemoteHost::hold_output(WorkerStream stream, bool hold) {
  held_[static_cast<size_t>(stream)] = hold;
  grant();
}

// Not for every line: half a window keeps the agent busy.
void RemoteHost::grant() {
  for (size_t i = 0; i < 2; i++) {
    if (held_[i] || owed_[i] < kOutputWindow / 2) continue;
    contact_.link->send(AgentRoom{.stream = static_cast<WorkerStream>(i), .bytes = std::exchange(owed_[i], 0)});
  }
}

void RemoteHost::add_to(PollSet& set) {
  if (is_gone_) return;
  set.wake_at(has_more_ ? Clock::now() : give_up_);
  if (contact_.ssh) contact_.ssh->add_to(set);
  if (broken_.empty()) contact_.link->add_to(set);
}

void RemoteHost::on_reaped(pid_t pid, int status) {
  if (contact_.ssh) contact_.ssh->on_reaped(pid, status);
}

void RemoteHost::look() {
  if (is_gone_) return;
  // Not all at once: the launcher has other hosts, and updates its screen in between.
  has_more_ = true;
  for (int i = 0; i < kMessagesAtOnce && has_more_; i++) has_more_ = broken_.empty() && receive();
  bool is_over = !broken_.empty() && (!contact_.ssh || contact_.ssh->is_over());
  if (is_over) return lose(broken_);
  if (Clock::now() < give_up_) return;
  if (!broken_.empty()) return lose(broken_);
  lose(has_left_ ? "its agent did not exit" : "its agent did not stop the workers in time", false);
}

bool RemoteHost::receive() {
  auto message = contact_.link->receive();
  if (!message.ok()) {
    broken_ = message.status().message();
    give_up_ = std::min(give_up_, Clock::now() + kLastWords);
    return false;
  }
  if (!*message) return false;
  bool was_starting = starting_ > 0;
  take(**message);
  if (was_starting && starting_ == 0) listen_for(silence_);
  return true;
}

void RemoteHost::take(const AgentMessage& message) {
  std::visit(
      Match{[&](const WorkerStarted& m) {
              starting_--;
              events_.on_started(m.worker, static_cast<pid_t>(m.pid));
            },
            [&](const WorkerNotStarted& m) {
              starting_--;
              events_.on_not_started(m.worker, m.reason);
            },
            [&](const WorkerOutput& m) {
              owed_[static_cast<size_t>(m.stream)] += m.bytes.size();
              events_.on_output(m.worker, m.stream, m.bytes);
              grant();
            },
            [&](const WorkerOutputEnd& m) { events_.on_output_end(m.worker, m.stream); },
            [&](const WorkerReport& m) { events_.on_report(m.worker, m.report); },
            [&](const WorkerEnded& m) { events_.on_ended(m.worker, m.ended); },
            [&](const AgentObserved& m) { take_observed(m); }, [&](const AgentNotice& m) { events_.on_notice(m.text); },
            [&](const AgentEmpty&) {
              give_up_ = kNever;
              events_.on_empty();
            },
            [](const auto&) {}},  // heartbeats, and messages that only a launcher sends
      message);
}

void RemoteHost::take_observed(const AgentObserved& part) {
  std::string& whole = observed_[part.id];
  if (whole.size() + part.json.size() <= kMostObserved) whole += part.json;
  if (!part.is_last) return;
  events_.on_observed(part.id, whole);
  observed_.erase(part.id);
}

// The last line of stderr from ssh or the agent is usually the reason.
void RemoteHost::lose(std::string_view reason, bool is_cause) {
  is_gone_ = true;
  if (!contact_.ssh) return has_left_ ? void() : events_.on_lost(reason, is_cause);
  contact_.ssh->kill();
  if (has_left_) return;
  std::string_view said = contact_.ssh->said();
  said = said.substr(0, said.find_last_not_of(" \t\r\n") + 1);
  said = said.substr(said.find_last_of("\r\n") + 1);
  if (said.starts_with("+ ")) said = {};  // a trace of kubexec.sh (set -x), unrelated to the end
  events_.on_lost(said.empty() ? std::string(reason) : fmt::format("{} ({})", reason, said), is_cause);
}

}  // namespace hvd::launcher
