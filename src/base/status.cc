#include "base/status.h"

#include <cstring>

namespace hvd {

Code error_code_of(uint64_t number) {
  return number > 0 && number <= static_cast<uint64_t>(kLastCode) ? static_cast<Code>(number) : Code::unknown;
}

std::string_view name_of(Code code) {
  switch (code) {
    case Code::ok: return "ok";
    case Code::invalid_argument: return "invalid argument";
    case Code::precondition: return "precondition";
    case Code::aborted: return "aborted";
    case Code::unknown: return "unknown";
    case Code::peer_lost: return "peer lost";
    case Code::timed_out: return "timed out";
    case Code::not_initialized: return "not initialised";
    case Code::removed: return "removed";
  }
  return "?";
}

Status system_error(std::string_view what, std::string_view about, int error) {
  std::string text(what);
  if (!about.empty()) text.append(" ").append(about);
  char buffer[128];
  text.append(": ").append(::strerror_r(error, buffer, sizeof buffer));
  return {Code::unknown, std::move(text)};
}

}  // namespace hvd
