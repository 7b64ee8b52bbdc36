// The conversation of a launcher with one agent: messages in both directions, and the knowledge that the other side is
// alive. A side with nothing to send sends a heartbeat; one that receives nothing for too long gives up.
// Thread rule: one thread. Nothing blocks.
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
  // `writing` is the descriptor to wait for when something is to be sent, if it is not the stream's.
  explicit AgentLink(std::unique_ptr<Stream> stream, int writing = -1);

  void send(const AgentMessage& message);
  // How long the other side may say nothing, counted from now; and how often we say something at least.
  void set_silence(Duration limit, Duration beat);
  void add_to(PollSet& set);

  // The next message, if there is one. Not ok: the link is over, and says so from now on.
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
