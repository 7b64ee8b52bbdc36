#include "launcher/agents/agent_call.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>

#include "base/number.h"
#include "launcher/processes/process.h"
#include "launcher/workers/meeting.h"
#include "net/connector.h"

namespace hvd::launcher {
namespace {

constexpr Duration kRound = std::chrono::seconds(10);  // names are resolved again after this time
constexpr Duration kPause = std::chrono::seconds(1);

Status interrupted(Signals& signals) {
  auto stops = signals.take_stop_signals();
  if (stops.empty()) return {};
  return {Code::aborted, fmt::format("got {}", signal_name(stops[0]))};
}

Status pause(Signals& signals, TimePoint until) {
  PollSet set;
  while (Clock::now() < until) {
    if (Status status = interrupted(signals); !status.ok()) return status;
    signals.add_to(set);
    set.wake_at(until);
    set.wait();
  }
  return {};
}

// One round: all current addresses of the name.
Result<std::unique_ptr<Stream>> try_once(const Rendezvous& address, const Credentials& credentials, Signals& signals,
                                         TimePoint until) {
  auto endpoints = resolve(address.host, address.port);
  if (!endpoints.ok()) {
    if (Status status = pause(signals, std::min(until, Clock::now() + kPause)); !status.ok()) return status;
    return Status(Code::timed_out, std::string(endpoints.status().message()));
  }
  Target target{.name = "the launcher", .endpoints = std::move(*endpoints), .identity = {.purpose = Purpose::agent}};
  auto connector = Connector::create(std::move(target), credentials, Clock::now(), until);
  if (!connector.ok()) return connector.status();
  PollSet set;
  while (true) {
    if (auto stream = (*connector)->poll(Clock::now())) {
      if (!stream->ok() && Clock::now() >= until)
        return Status(Code::timed_out, std::string(stream->status().message()));
      return std::move(*stream);
    }
    if (Status status = interrupted(signals); !status.ok()) return status;
    set.add((*connector)->descriptor(), POLLIN, [] {});
    signals.add_to(set);
    set.wait();
  }
}

}  // namespace

Result<Rendezvous> parse_rendezvous(std::string_view text) {
  size_t colon = text.rfind(':');
  Rendezvous address;
  std::string_view port = colon == std::string_view::npos ? "" : text.substr(colon + 1);
  address.port = read_number<uint16_t>(port).value_or(0);
  if (address.port == 0)
    return Status(Code::invalid_argument,
                  fmt::format("--rendezvous {}: expected HOST:PORT, as in node1:4711 or [fd00::2]:4711", text));
  std::string_view host = text.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  address.host = host;
  return address;
}

Result<std::unique_ptr<Stream>> call_launcher(const Options& options, Signals& signals) {
  auto address = parse_rendezvous(options.rendezvous);
  if (!address.ok()) return address.status();
  if (address->host.empty()) return Status(Code::invalid_argument, "--rendezvous needs the launcher's host");
  auto key = key_of_job(options);
  if (!key.ok()) return key.status();
  auto credentials = encrypted_credentials(*key);
  if (!credentials.ok()) return credentials.status();
  TimePoint deadline = options.start_timeout ? Clock::now() + seconds(*options.start_timeout) : kNever;
  for (bool has_said = false;; has_said = true) {
    TimePoint until = std::min(deadline, Clock::now() + kRound);
    auto stream = try_once(*address, *credentials, signals, until);
    if (stream.ok() || stream.status().code() != Code::timed_out) return stream;
    std::string reason(stream.status().message());
    if (reason.find("TLS: ") != std::string::npos)  // a process answers, but not with TLS
      return Status(Code::precondition, fmt::format("the launcher has a different key: {}", reason));
    if (Clock::now() >= deadline) return stream;
    if (!has_said) fmt::print(stderr, "horovodrun --agent: still waiting for the launcher: {}\n", reason);
  }
}

Result<std::unique_ptr<Stream>> call_back(const Invitation& invitation, const std::string& own, Signals& signals) {
  auto credentials = invited_credentials(Side::agent, own, invitation.certificate);
  if (!credentials.ok()) return credentials.status();
  Rendezvous address{.host = invitation.addresses, .port = invitation.port};
  return try_once(address, *credentials, signals, after(Clock::now(), seconds(invitation.seconds)));
}

}  // namespace hvd::launcher
