// The connection between a launcher and one agent: messages in both directions, and detection of a lost peer. A side
// with nothing to send sends a heartbeat; a side that receives nothing for too long gives up. Thread rule: one thread.
// Nothing blocks.
#pragma once

#include <memory>
#include <optional>

#include "base/clock.h"
#include "launcher/agents/agent_messages.h"
#include "launcher/processes/poll_set.h"
#include "net/framed.h"
#include "net/hearing.h"

namespace hvd::launcher {

class AgentLink {
 public:
  // `writing`: the descriptor to wait for before writing, if it is not the stream's.
  explicit AgentLink(std::unique_ptr<Stream> stream, int writing = -1);

  void send(const AgentMessage& message);
  // How long the other side may be silent, counted from now; and the longest time between messages of this side.
  void set_silence(Duration limit, Duration beat);
  void add_to(PollSet& set);

  // The next message, if there is one. Not ok: the link has ended; all later calls return the same.
  Result<std::optional<AgentMessage>> receive();
  bool has_unsent() const { return frames_.has_unsent(); }

 private:
  FramedStream frames_;
  int writing_;
  Status failure_;
  Duration silence_ = Duration::max();
  Duration beat_ = std::chrono::seconds(1);
  TimePoint spoke_at_;
  Hearing hearing_;
};

}  // namespace hvd::launcher
