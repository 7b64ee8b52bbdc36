#include "launcher/agents/agent.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <set>

#include "base/host_name.h"
#include "launcher/agents/agent_call.h"
#include "launcher/agents/agent_link.h"
#include "launcher/processes/process.h"
#include "launcher/processes/signals.h"
#include "launcher/workers/binding.h"
#include "launcher/workers/crew.h"
#include "net/stream.h"

namespace hvd::launcher {
namespace {

constexpr size_t kObservedPart = 1 << 20;
constexpr Duration kPartingTime = std::chrono::seconds(2);  // time to send the last messages

class StdioStream : public Stream {
 public:
  Result<size_t> read(std::span<std::byte> into) override {
    ssize_t count = ::read(STDIN_FILENO, into.data(), into.size());
    if (count == 0 && !into.empty()) return Status(Code::peer_lost, "connection closed by the peer");
    return moved(count);
  }
  Result<size_t> write(ByteView from) override { return moved(::write(STDOUT_FILENO, from.data(), from.size())); }
  int descriptor() const override { return STDIN_FILENO; }
  bool has_buffered() const override { return false; }

 private:
  static Result<size_t> moved(ssize_t count) {
    if (count >= 0) return static_cast<size_t>(count);
    if (errno == EAGAIN || errno == EINTR) return size_t{0};
    return Status(Code::peer_lost, fmt::format("connection lost: {}", std::strerror(errno)));
  }
};

std::unique_ptr<Stream> make_stdio_stream() {
  for (int fd : {STDIN_FILENO, STDOUT_FILENO}) ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
  return std::make_unique<StdioStream>();
}

int agent_failed(std::string_view reason) {
  fmt::print(stderr, "horovodrun --agent: {}\n", reason);
  return 1;
}

AgentHello own_hello() {
  return {.version = HVD_VERSION, .host = host_name(), .pid = ::getpid(), .cores = core_count()};
}

class Agent : public HostEvents {
 public:
  Agent(AgentLink& link, Signals& signals) : link_(link), signals_(signals), crew_(*this, strangers_) {}

  int run() {
    link_.send(own_hello());
    while (!is_over()) {
      for (WorkerStream stream : {WorkerStream::out, WorkerStream::err})
        crew_.hold_output(stream, !is_lost_ && room_[static_cast<size_t>(stream)] <= 0);
      signals_.add_to(set_);
      crew_.add_to(set_);
      if (!is_lost_) link_.add_to(set_);
      set_.wake_at(part_by_);
      set_.wait();
      look();
    }
    return lost_.empty() ? 0 : agent_failed(lost_);
  }

  void on_started(int worker, pid_t pid) override { link_.send(WorkerStarted{.worker = worker, .pid = pid}); }
  void on_not_started(int worker, std::string_view reason) override {
    link_.send(WorkerNotStarted{.worker = worker, .reason = std::string(reason)});
  }
  void on_output(int worker, WorkerStream stream, std::string_view bytes) override {
    if (is_lost_) return;
    room_[static_cast<size_t>(stream)] -= static_cast<int64_t>(bytes.size());
    link_.send(WorkerOutput{.worker = worker, .stream = stream, .bytes = std::string(bytes)});
  }
  void on_output_end(int worker, WorkerStream stream) override { link_.send(WorkerOutputEnd{worker, stream}); }
  void on_report(int worker, const EndReport& report) override { link_.send(WorkerReport{worker, report}); }
  void on_ended(int worker, const Ended& ended) override { link_.send(WorkerEnded{worker, ended}); }
  // In parts: one message must not be longer than kLargestAgentMessage.
  void on_observed(uint64_t id, std::string_view json) override {
    while (json.size() > kObservedPart) {
      link_.send(AgentObserved{.id = id, .json = std::string(json.substr(0, kObservedPart)), .is_last = false});
      json.remove_prefix(kObservedPart);
    }
    link_.send(AgentObserved{.id = id, .json = std::string(json)});
  }
  void on_notice(std::string_view text) override { link_.send(AgentNotice{std::string(text)}); }
  void on_empty() override {
    is_empty_ = true;
    link_.send(AgentEmpty{});
  }
  void on_lost(std::string_view, bool) override {}

 private:
  bool is_over() const {
    if (is_lost_) return is_empty_;
    return is_leaving_ && is_empty_ && (!link_.has_unsent() || Clock::now() >= part_by_);
  }

  void look() {
    for (int signal : signals_.take_stop_signals()) {
      on_notice(fmt::format("the agent got {} and is stopping its workers", signal_name(signal)));
      if (std::exchange(is_stopping_, true)) crew_.kill();
      lose(fmt::format("got {}", signal_name(signal)), false);
    }
    signals_.reap([&](pid_t pid, int status) { crew_.on_reaped(pid, status); });
    crew_.look();
    while (!is_lost_ && receive()) {
    }
  }

  bool receive() {
    auto message = link_.receive();
    if (!message.ok()) {
      lose(fmt::format("the launcher is gone: {}", message.status().message()), true);
      return false;
    }
    if (!*message) return false;
    take(**message);
    return true;
  }

  void take(const AgentMessage& message) {
    if (const auto* work = std::get_if<AgentWork>(&message)) {
      link_.set_silence(seconds(work->silence), seconds(work->beat));
      crew_.set_work(work->work);
    } else if (const auto* start = std::get_if<AgentStart>(&message)) {
      is_empty_ = false;
      crew_.start(start->start);
    } else if (const auto* stop = std::get_if<AgentStop>(&message)) {
      if (stop->at_once) {
        crew_.kill();
      } else if (stop->worker >= 0) {
        crew_.stop(stop->worker);
      } else {
        crew_.stop();
      }
    } else if (const auto* observe = std::get_if<AgentObserve>(&message)) {
      crew_.observe(observe->request);
    } else if (const auto* room = std::get_if<AgentRoom>(&message)) {
      room_[static_cast<size_t>(room->stream)] += static_cast<int64_t>(room->bytes);
    } else if (std::holds_alternative<AgentLeave>(message)) {
      is_leaving_ = true;
      part_by_ = Clock::now() + kPartingTime;
      if (!is_empty_) crew_.kill();
    }
  }

  // The launcher is gone: end everything on this host.
  void lose(std::string reason, bool at_once) {
    if (!is_leaving_ && lost_.empty()) lost_ = std::move(reason);
    is_lost_ = true;
    if (is_empty_) return;
    if (at_once) {
      crew_.kill();
    } else {
      crew_.stop();
    }
  }

  AgentLink& link_;
  Signals& signals_;
  std::set<pid_t> strangers_;
  Crew crew_;
  PollSet set_;
  int64_t room_[2] = {kOutputWindow, kOutputWindow};
  bool is_empty_ = true;  // nothing was started, or all of it has ended
  bool is_stopping_ = false, is_leaving_ = false, is_lost_ = false;
  TimePoint part_by_ = kNever;
  std::string lost_;  // the reason, unless the launcher dismissed the agent
};

// Waits for the launcher's first message; peer_lost: stdin has ended.
Status await_first_word(AgentLink& link, Signals& signals) {
  PollSet set;
  while (true) {
    auto message = link.receive();
    if (!message.ok())
      return {
          Code::peer_lost,
          "stdin ended before any message from the launcher: the program that runs this command must forward stdin"};
    if (*message) return {};
    if (auto stops = signals.take_stop_signals(); !stops.empty())
      return {Code::aborted, fmt::format("got {}", signal_name(stops[0]))};
    set.add(STDIN_FILENO, POLLIN, [] {});
    signals.add_to(set);
    set.wait();
  }
}

// The first line that a launcher expects on our stdout.
Status say_opening(Stream& out, std::string_view opening) {
  std::string line = fmt::format("{}{}\n", kAgentMark, opening);
  auto said = out.write(std::as_bytes(std::span(line)));
  if (said.ok() && *said == line.size()) return {};
  return {Code::peer_lost, "cannot write to stdout"};
}

int serve(Result<std::unique_ptr<Stream>> stream, Signals& signals) {
  if (!stream.ok()) return agent_failed(stream.status().message());
  AgentLink link(std::move(*stream));
  return Agent(link, signals).run();
}

// Without stdin, the launcher only reads stdout until the agent connects to it.
int answer(const Invitation& invitation, Stream& out, Signals& signals) {
  auto identity = make_tls_identity();
  if (!identity.ok()) return agent_failed(identity.status().message());
  auto certificate = fingerprint_of(*identity);
  if (!certificate.ok()) return agent_failed(certificate.status().message());
  if (Status status = say_opening(out, answer_text(*certificate)); !status.ok()) return agent_failed(status.message());
  return serve(call_back(invitation, *identity, signals), signals);
}

}  // namespace

int run_started_agent(const std::optional<Invitation>& invitation) {
  adopt_orphans();
  auto signals = Signals::create();
  if (!signals.ok()) return agent_failed(signals.status().message());
  std::unique_ptr<Stream> stream = make_stdio_stream();
  Stream& raw = *stream;
  AgentLink link(std::move(stream), STDOUT_FILENO);
  Status heard = await_first_word(link, *signals);
  if (heard.code() == Code::peer_lost && invitation) return answer(*invitation, raw, *signals);
  if (heard.ok()) heard = say_opening(raw, "");
  if (!heard.ok()) return agent_failed(heard.message());
  return Agent(link, *signals).run();
}

int run_agent(const Options& options) {
  adopt_orphans();
  auto signals = Signals::create();
  if (!signals.ok()) return agent_failed(signals.status().message());
  return serve(call_launcher(options, *signals), *signals);
}

}  // namespace hvd::launcher
