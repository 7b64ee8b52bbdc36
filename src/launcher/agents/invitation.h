// How a launcher and an agent find together when the way to the agent has no stdin (`kubectl exec` without -i). Only
// public values are exchanged on it:
//   the agent's command line   the invitation: the launcher's public key, and where it listens for this agent
//   the agent's stdout         the answer: the agent's public key
// Both make the same key of the two (key_agreement.h); the agent calls the launcher, and what they say to each other is
// encrypted with it from the first byte on. docs/security.md has the reasoning. Thread rule: plain values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"
#include "launcher/agents/key_agreement.h"

namespace hvd {

struct Invitation {
  PublicKey key{};
  uint16_t port = 0;
  int seconds = 0;        // after which nobody listens there any more
  std::string addresses;  // separated by commas
};
std::string to_text(const Invitation& invitation);  // one word that no shell changes
Result<Invitation> parse_invitation(std::string_view text);

// Whatever a login shell prints comes before this mark, with which an agent begins to speak on stdout; the rest of the
// line is its opening. An empty one means that messages follow here, otherwise it is an answer.
inline constexpr std::string_view kAgentMark{"\n\0horovod agent", 15};
inline constexpr size_t kLongestOpening = 128;
std::string answer_text(const PublicKey& key);
Result<PublicKey> parse_answer(std::string_view opening);

}  // namespace hvd
