// How a launcher and an agent connect when the command that starts the agent has no stdin (`kubectl exec` without -i).
// That command carries only public values:
//   the agent's command line   the invitation: the fingerprint of the launcher's certificate, and where it listens
//   the agent's stdout         the answer: the fingerprint of the agent's certificate
// Both certificates are made for this one connection. The agent connects to the launcher with TLS, where each side
// accepts only the certificate with the fingerprint that it was given. docs/security.md has the reasoning.
// Thread rule: plain values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"
#include "net/credentials.h"

namespace hvd::launcher {

struct Invitation {
  Fingerprint certificate{};
  uint16_t port = 0;
  int seconds = 0;        // how long the launcher listens
  std::string addresses;  // separated by commas
};
std::string to_text(const Invitation& invitation);  // one word that no shell changes
Result<Invitation> parse_invitation(std::string_view text);

// An agent first prints this mark on stdout; a login shell may have printed text before it. The rest of the line is the
// opening: empty if messages follow on stdout, otherwise an answer.
inline constexpr std::string_view kAgentMark{"\n\0horovod agent", 15};
inline constexpr size_t kLongestOpening = 128;
std::string answer_text(const Fingerprint& certificate);
Result<Fingerprint> parse_answer(std::string_view opening);

// Credentials of the two sides. `own` is a TLS identity.
enum class Side { launcher, agent };
Result<Credentials> invited_credentials(Side side, std::string_view own, const Fingerprint& peer);

}  // namespace hvd::launcher
