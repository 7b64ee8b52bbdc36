// Feeds what an agent and a launcher read from each other: messages, of which each that can be read must be written and
// read the same way again, and the facts of a doctor's probe.
#include <cstdint>
#include <cstdlib>

#include "launcher/agents/agent_messages.h"
#include "launcher/doctor/facts.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hvd;
  [[maybe_unused]] bool known = facts_from({reinterpret_cast<const char*>(data), size}).ok();
  auto message = decode_agent_message(std::as_bytes(std::span(data, size)));
  if (!message.ok()) return 0;
  Bytes written = encode(*message);
  auto again = decode_agent_message(written);
  if (!again.ok() || encode(*again) != written) std::abort();
  return 0;
}
