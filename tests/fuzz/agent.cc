// Feeds the messages between an agent and a launcher: each valid one must be written and
// read the same way again; invitations and their answers; and the facts of a doctor's probe.
#include <cstdint>
#include <cstdlib>

#include "launcher/agents/agent_messages.h"
#include "launcher/agents/invitation.h"
#include "launcher/doctor/facts.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hvd;
  using namespace hvd::launcher;
  std::string_view text(reinterpret_cast<const char*>(data), size);
  [[maybe_unused]] bool known = facts_from(text).ok();
  if (auto invitation = parse_invitation(text); invitation.ok()) {
    auto again = parse_invitation(to_text(*invitation));
    if (!again.ok() || again->certificate != invitation->certificate || again->addresses != invitation->addresses)
      std::abort();
  }
  if (auto key = parse_answer(text); key.ok() && parse_answer(answer_text(*key)).value() != *key) std::abort();
  auto message = decode_agent_message(std::as_bytes(std::span(data, size)));
  if (!message.ok()) return 0;
  Bytes written = encode(*message);
  auto again = decode_agent_message(written);
  if (!again.ok() || encode(*again) != written) std::abort();
  return 0;
}
