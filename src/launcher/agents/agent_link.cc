#include "launcher/agents/agent_link.h"

#include <fmt/core.h>

#include <algorithm>

namespace hvd::launcher {
namespace {

constexpr FrameLimits kFrames{
    .largest_received = kLargestAgentMessage, .largest_sent = kLargestAgentMessage, .queued = 4 * kLargestAgentMessage};

}  // namespace

AgentLink::AgentLink(std::unique_ptr<Stream> stream, int writing)
    : frames_(std::move(stream), kFrames), writing_(writing), spoke_at_(Clock::now()), hearing_(spoke_at_) {
  if (writing_ < 0) writing_ = frames_.descriptor();
}

void AgentLink::send(const AgentMessage& message) {
  spoke_at_ = Clock::now();
  if (!failure_.ok()) return;
  failure_ = frames_.send(encode(message));
}

void AgentLink::set_silence(Duration limit, Duration beat) {
  silence_ = limit;
  beat_ = beat;
  hearing_.restart(Clock::now());
}

void AgentLink::add_to(PollSet& set) {
  TimePoint now = Clock::now();
  if (now - spoke_at_ >= beat_) send(AgentBeat{});
  set.wake_at(spoke_at_ + beat_);
  set.wake_at(after(hearing_.heard_at(), silence_));
  if (!failure_.ok()) set.wake_at(now);
  set.add(frames_.descriptor(), POLLIN, [] {});
  if (frames_.has_unsent()) set.add(writing_, POLLOUT, [] {});
}

Result<std::optional<AgentMessage>> AgentLink::receive() {
  if (failure_.ok()) failure_ = frames_.flush();
  auto bytes = frames_.receive();  // also after a failure: earlier messages still count
  if (!bytes.ok()) {
    failure_ = bytes.status();
    return failure_;
  }
  TimePoint now = Clock::now();
  hearing_.look(now, silence_);
  if (!*bytes) {
    if (now - hearing_.heard_at() >= silence_ && failure_.ok())
      failure_ = Status(Code::peer_lost, fmt::format("silent for {:.3g} s", seconds_of(silence_)));
    if (!failure_.ok()) return failure_;
    return std::optional<AgentMessage>();
  }
  hearing_.hear(now);
  auto message = decode_agent_message(**bytes);
  if (!message.ok()) {
    failure_ = message.status();
    return failure_;
  }
  return std::optional(std::move(*message));
}

}  // namespace hvd::launcher
