#include "launcher/agents/contact.h"

#include <fmt/core.h>

#include <algorithm>

namespace hvd::launcher {

std::string describe(const std::vector<Unreachable>& failures, size_t hosts) {
  std::string text =
      fmt::format("horovodrun: {} of {} hosts cannot be used, so nothing was started:\n", failures.size(), hosts);
  size_t width = 0;
  for (const Unreachable& each : failures) width = std::max(width, each.host.size());
  for (const Unreachable& each : failures) {
    text += fmt::format("    {:{}}  {}\n", each.host, width, each.reason);
    if (!each.command.empty()) text += fmt::format("    {:{}}  try: {}\n", "", width, each.command);
  }
  return text;
}

Status check_hello(const AgentHello& hello) {
  if (hello.protocol == kAgentProtocol) return {};
  return {Code::precondition,
          fmt::format("it has horovodrun {}, whose protocol differs from that of {}; install the same version",
                      hello.version, HVD_VERSION)};
}

}  // namespace hvd::launcher
