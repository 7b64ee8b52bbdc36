#include "launcher/fleet/ssh_contacts.h"

#include <fmt/core.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>

namespace hvd::launcher {
namespace {

constexpr size_t kMostPrinted = 64 << 10;                    // from a login shell before the agent starts
constexpr Duration kQuestionTime = std::chrono::seconds(2);  // for ssh to print its configuration

}  // namespace

SshContacts::SshContacts(Ssh ssh, const std::vector<Host>& hosts, std::string path, std::vector<std::string> interfaces,
                         TimePoint deadline, std::set<pid_t>& strangers)
    : ssh_(std::move(ssh)),
      path_(std::move(path)),
      interfaces_(std::move(interfaces)),
      began_(Clock::now()),
      deadline_(deadline),
      strangers_(strangers) {
  for (const Host& host : hosts) calls_.emplace_back().host = host;
}

bool SshContacts::is_done() const {
  return std::all_of(calls_.begin(), calls_.end(), [](const Call& call) { return call.step == Step::over; });
}

void SshContacts::add_to(PollSet& set) {
  auto under_way = [](const Call& call) { return call.step == Step::asking || call.step == Step::calling; };
  size_t free = kAtOnce - static_cast<size_t>(std::count_if(calls_.begin(), calls_.end(), under_way));
  for (Call& call : calls_) {
    if (call.step == Step::waiting && free > 0) {
      free--;
      ask(call);
    }
    if (!under_way(call)) continue;
    call.process->add_to(set);
    if (call.link) {
      call.link->add_to(set);
    } else if (call.door && call.door->is_open()) {
      call.door->add_to(set);
    } else if (call.process->conversation()) {
      set.add(call.process->conversation().get(), POLLIN, [] {});
    }
    if (call.step == Step::asking) set.wake_at(call.answer_by);
  }
  set.wake_at(is_done() ? Clock::now() : deadline_);
}

void SshContacts::ask(Call& call) {
  if (!ssh_.is_openssh || ssh_.strict) return call_host(call, HostKeys::accept_new);
  auto process = PipedProcess::ask(query_command(ssh_, call.host), strangers_);
  if (!process.ok()) return end(call, std::string(process.status().message()));
  call.process = std::make_unique<PipedProcess>(std::move(*process));
  call.answer_by = Clock::now() + kQuestionTime;
  call.step = Step::asking;
}

void SshContacts::call_host(Call& call, HostKeys keys) {
  std::string invitation;
  if (!ssh_.is_openssh) {
    auto door = InvitedDoor::create(interfaces_, deadline_);
    if (!door.ok()) return end(call, std::string(door.status().message()));
    call.door = std::move(*door);
    invitation = to_text(call.door->invitation());
  }
  auto process = PipedProcess::start(agent_command(ssh_, call.host, keys, path_, invitation), strangers_);
  if (!process.ok()) return end(call, std::string(process.status().message()));
  call.process = std::make_unique<PipedProcess>(std::move(*process));
  call.printed.clear();
  call.step = Step::calling;
  // The agent waits for a first message, so it notices if its stdin is not connected.
  FramedStream first(make_plain_stream(UniqueFd(::dup(call.process->conversation().get()))), FrameLimits{});
  (void)first.send(encode(AgentMessage(AgentBeat{})));  // a few bytes always fit; reading will report a failure
}

void SshContacts::on_reaped(pid_t pid, int status) {
  for (Call& call : calls_)
    if (call.process) call.process->on_reaped(pid, status);
  for (Contact& contact : contacts_) contact.ssh->on_reaped(pid, status);
  for (auto& process : killed_) process->on_reaped(pid, status);
  std::erase_if(killed_, [](const auto& process) { return process->is_over(); });
}

void SshContacts::look() {
  for (Call& call : calls_)
    if (call.step == Step::asking || call.step == Step::calling) look_at(call);
  if (Clock::now() < deadline_) return;
  for (Call& call : calls_)
    if (call.step != Step::over) end(call, why_silent(call));
}

void SshContacts::look_at(Call& call) {
  if (call.step == Step::asking) return take_answer(call);
  bool has_ended = call.process->is_over();  // all its output is in the socket now
  if (!call.link) look_for_agent(call);
  if (call.step == Step::over) return;
  if (call.link) return listen(call);
  if (has_ended) end(call, why_silent(call));
}

// A program called ssh that is not OpenSSH may not support the query, and hang or start a background process.
void SshContacts::take_answer(Call& call) {
  bool has_ended = call.process->is_over();
  std::array<char, 4096> buffer;
  for (ssize_t count = 1; count > 0;) {
    count = ::read(call.process->conversation().get(), buffer.data(), buffer.size());
    if (count > 0 && call.printed.size() < kMostPrinted) call.printed.append(buffer.data(), static_cast<size_t>(count));
    if (Clock::now() >= call.answer_by) break;  // a program that never stops printing
  }
  if (!has_ended && Clock::now() < call.answer_by) return;
  if (!has_ended) {
    call.process->kill();
    killed_.push_back(std::move(call.process));
  }
  call_host(call, host_keys_of(call.printed));
}

void SshContacts::look_for_agent(Call& call) {
  if (!call.door || !call.door->is_open()) {
    auto opening = read_opening(call);
    if (!opening) return;
    if (opening->empty()) {
      call.door.reset();
      call.link = std::make_unique<AgentLink>(make_plain_stream(call.process->take_conversation()));
      return;
    }
    Status status = call.door ? call.door->open(*opening) : Status(Code::precondition, "its agent was not invited");
    if (!status.ok()) return end(call, std::string(status.message()));
  }
  call.link = call.door->look();
}

// Reads exactly up to the end of the agent's opening line. Empty: it has not arrived yet.
std::optional<std::string> SshContacts::read_opening(Call& call) {
  int socket = call.process->conversation().get();
  std::array<char, 4096> buffer;
  while (true) {
    ssize_t count = ::recv(socket, buffer.data(), buffer.size(), MSG_DONTWAIT | MSG_PEEK);
    if (count <= 0) return std::nullopt;
    size_t known = call.printed.size();
    call.printed.append(buffer.data(), static_cast<size_t>(count));
    size_t at = call.printed.find(kAgentMark, known - std::min(known, kLongestOpening));
    size_t end = at == std::string::npos ? at : call.printed.find('\n', at + kAgentMark.size());
    bool found = end != std::string::npos;
    size_t taken = found ? end + 1 - known : static_cast<size_t>(count);
    (void)::recv(socket, buffer.data(), taken, MSG_DONTWAIT);
    if (found) {
      size_t begin = at + kAgentMark.size();
      std::string opening = call.printed.substr(begin, end - begin);
      call.printed.resize(at);
      return opening;
    }
    if (call.printed.size() > kMostPrinted) call.printed.erase(0, call.printed.size() - kMostPrinted / 2);
  }
}

void SshContacts::listen(Call& call) {
  auto message = call.link->receive();
  if (!message.ok()) {
    if (call.process->is_over()) return end(call, why_silent(call));
    if (call.door) call.link.reset();  // an invited agent may connect again
    return;                            // otherwise its last messages are still to come
  }
  if (!*message) return;
  const auto* hello = std::get_if<AgentHello>(&**message);
  if (hello == nullptr) return listen(call);
  if (Status status = check_hello(*hello); !status.ok()) return end(call, std::string(status.message()));
  contacts_.push_back({call.host, *hello, std::move(call.link), std::move(call.process)});
  call.door.reset();
  call.step = Step::over;
}

// Its ssh has ended, or the time is up.
std::string SshContacts::why_silent(const Call& call) const {
  if (call.process && call.process->is_over())
    return explain_failure(ssh_, call.host, *call.process->ending(), call.process->said(), call.printed);
  double time = seconds_of(deadline_ - began_);
  if (!call.door || !call.door->is_open()) return fmt::format("no answer within {:.0f} s (--start-timeout)", time);
  const Invitation& invitation = call.door->invitation();
  return fmt::format(
      "its agent is running, but did not reach this machine within {:.0f} s (--start-timeout) at port {} of {}; is a "
      "firewall "
      "between? --network-interfaces chooses addresses",
      time, invitation.port, invitation.addresses);
}

void SshContacts::end(Call& call, std::string reason) {
  if (call.process) call.process->kill();
  call.door.reset();
  call.step = Step::over;
  failures_.push_back({call.host.name, std::move(reason), trial_command(ssh_, call.host)});
}

}  // namespace hvd::launcher
