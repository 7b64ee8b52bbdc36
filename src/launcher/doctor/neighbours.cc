#include "launcher/doctor/neighbours.h"

#include <fmt/core.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <deque>
#include <optional>
#include <set>

#include "launcher/doctor/door.h"
#include "net/poller.h"

namespace hvd::launcher {
namespace {

constexpr size_t kCallsAtOnce = 64;
constexpr Duration kDoubtfulPatience = std::chrono::milliseconds(500);
constexpr int kQuestions = 8;
constexpr size_t kAnswerSize = 8;

struct Call {
  size_t neighbour = 0;
  Attempt attempt;
  std::vector<Endpoint> endpoints;  // one, or a link-local address through each of our interfaces
  std::unique_ptr<Connector> connector;
  Duration patience{};
  TimePoint began{};
};

// Without the address, which the caller adds: "connection refused (4 tries)".
std::string reason_of(const Status& status, const std::vector<Endpoint>& endpoints) {
  std::string text(status.message()), before = to_text(endpoints.front()) + ": ";
  size_t at = endpoints.size() == 1 ? text.find(before) : std::string::npos;
  return at == std::string::npos ? text : text.substr(at + before.size());
}

class Calls {
 public:
  Calls(const Credentials& credentials, int32_t own_rank, Duration patience, TimePoint deadline)
      : credentials_(credentials), own_rank_(own_rank), patience_(patience), deadline_(deadline) {
    if (auto ours = read_interfaces(); ours.ok()) ours_ = std::move(*ours);
  }

  void add(const Neighbour& neighbour, size_t index, const Address& address) {
    Call& call = calls_.emplace_back();
    call.neighbour = index;
    call.patience = patience_;
    call.attempt = {.host = neighbour.host, .address = address, .time = {}, .error = {}, .is_own = false};
    ranks_.push_back(neighbour.rank);
    auto ip = parse_ip(address.ip);
    if (!ip.ok()) {
      call.attempt.error = ip.status().message();
      return;
    }
    call.attempt.is_own = std::any_of(ours_.begin(), ours_.end(), [&](InterfaceAddress own) {
      own.ip.scope = 0;  // as published
      return own.ip == *ip;
    });
    call.endpoints = order_for_connecting({{{*ip, address.port}, address.interface}}, ours_);
  }

  // Most of these do not work, and need only a short wait, unless a neighbour has no others: then it may be a second
  // "host" on this machine.
  void hurry_doubtful() {
    std::set<size_t> has_others;
    for (const Call& call : calls_)
      if (!is_doubtful(call.attempt)) has_others.insert(call.neighbour);
    for (Call& call : calls_)
      if (is_doubtful(call.attempt) && has_others.contains(call.neighbour))
        call.patience = std::min(patience_, kDoubtfulPatience);
  }

  void run(std::vector<std::unique_ptr<Stream>>& streams) {
    size_t next = 0;
    std::vector<size_t> under_way;
    while (next < calls_.size() || !under_way.empty()) {
      while (next < calls_.size() && under_way.size() < kCallsAtOnce)
        if (size_t index = next++; start(calls_[index], ranks_[index])) under_way.push_back(index);
      wait(under_way);
      std::erase_if(under_way, [&](size_t index) { return is_over(calls_[index], streams); });
    }
  }

  std::vector<Attempt> take_attempts() {
    std::vector<Attempt> attempts;
    for (Call& call : calls_) attempts.push_back(std::move(call.attempt));
    return attempts;
  }

 private:
  bool start(Call& call, int32_t rank) {
    call.began = Clock::now();
    if (!call.attempt.error.empty()) return false;
    if (call.began >= deadline_) call.attempt.error = "not tried: there was no time left (--start-timeout)";
    if (call.endpoints.empty()) call.attempt.error = "not tried: no interface here leads to it";
    if (!call.attempt.error.empty()) return false;
    Target target{.name = call.attempt.host,
                  .endpoints = call.endpoints,
                  .identity = {.purpose = Purpose::data, .from = own_rank_, .to = rank}};
    ConnectorSettings settings;
    settings.stagger = Duration(0);
    settings.patience = call.patience;
    auto connector = Connector::create(std::move(target), credentials_, call.began,
                                       std::min(deadline_, call.began + call.patience), settings);
    if (connector.ok()) {
      call.connector = std::move(*connector);
    } else {
      call.attempt.error = connector.status().message();
    }
    return connector.ok();
  }

  void wait(const std::vector<size_t>& under_way) const {
    std::vector<pollfd> wanted;
    wanted.reserve(under_way.size());
    for (size_t index : under_way)
      wanted.push_back({.fd = calls_[index].connector->descriptor(), .events = POLLIN, .revents = 0});
    if (!wanted.empty()) ::poll(wanted.data(), wanted.size(), -1);  // connectors have their own deadlines
  }

  static bool is_over(Call& call, std::vector<std::unique_ptr<Stream>>& streams) {
    auto outcome = call.connector->poll(Clock::now());
    if (!outcome) return false;
    if (outcome->ok()) {
      call.attempt.time = seconds_of(Clock::now() - call.began);
      if (streams[call.neighbour] == nullptr) streams[call.neighbour] = std::move(**outcome);
    } else {
      call.attempt.error = reason_of(outcome->status(), call.endpoints);
    }
    call.connector.reset();
    return true;
  }

  const Credentials& credentials_;
  int32_t own_rank_;
  Duration patience_;
  TimePoint deadline_;
  std::vector<InterfaceAddress> ours_;
  std::deque<Call> calls_;
  std::vector<int32_t> ranks_;  // of the neighbours, by call
};

Status wait_for(const Stream& stream, TimePoint deadline) {
  if (Clock::now() >= deadline) return {Code::timed_out, "no answer in time"};
  pollfd wanted{.fd = stream.descriptor(), .events = POLLIN, .revents = 0};
  ::poll(&wanted, 1, milliseconds_until(deadline));
  return {};
}

Result<double> ask_time(Stream& stream, TimePoint deadline) {
  std::array<std::byte, 1> question{};
  auto written = stream.write(question);
  if (!written.ok()) return written.status();
  std::array<std::byte, kAnswerSize> answer;
  for (size_t length = 0; length < kAnswerSize;) {
    auto count = stream.read(std::span(answer).subspan(length));
    if (!count.ok()) return count.status();
    length += *count;
    if (*count > 0) continue;
    if (Status status = wait_for(stream, deadline); !status.ok()) return status;
  }
  return Decoder(answer).f64();
}

}  // namespace

std::vector<Attempt> try_addresses(const std::vector<Neighbour>& neighbours, const Credentials& credentials,
                                   int32_t own_rank, Duration patience, TimePoint deadline,
                                   std::vector<std::unique_ptr<Stream>>& streams) {
  streams.clear();
  streams.resize(neighbours.size());
  Calls calls(credentials, own_rank, patience, deadline);
  for (size_t index = 0; index < neighbours.size(); index++)
    for (const Address& address : neighbours[index].addresses) calls.add(neighbours[index], index, address);
  calls.hurry_doubtful();
  calls.run(streams);
  return calls.take_attempts();
}

// The answer was taken between question and reply: using the middle, the error is at most half of that time.
Result<ClockOffset> compare_clocks(Stream& stream, TimePoint deadline) {
  std::optional<ClockOffset> best;
  for (int i = 0; i < kQuestions; i++) {
    double before = wall_time();
    TimePoint began = Clock::now();
    auto theirs = ask_time(stream, deadline);
    if (!theirs.ok()) return theirs.status();
    double half = seconds_of(Clock::now() - began) / 2;
    if (!best || half < best->uncertainty) best = {.seconds = before + half - *theirs, .uncertainty = half};
  }
  return *best;
}

}  // namespace hvd::launcher
