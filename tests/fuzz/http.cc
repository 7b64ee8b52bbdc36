// Requests to the launcher's small server, and dumps that horovodrun --explain reads, come from anywhere.
#include "launcher/observe/http.h"

#include <nlohmann/json.hpp>
#include <string_view>

#include "launcher/observatory/explain.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view bytes(reinterpret_cast<const char*>(data), size);
  using State = hvd::launcher::ParsedRequest::State;
  auto parsed = hvd::launcher::parse_request(bytes);
  if (parsed.state == State::incomplete && size >= hvd::launcher::kLongestRequest) __builtin_trap();
  if (parsed.state == State::complete && !parsed.request.path.starts_with('/')) __builtin_trap();
  std::string text(bytes);
  (void)hvd::launcher::explain(text);
  (void)hvd::launcher::place_in(text);
  return 0;
}
