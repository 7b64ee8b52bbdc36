// The cause of a failure as data: it travels with a Status through shared memory, control links, the C ABI and
// exceptions to the launcher, so that it need not be parsed from the text of an error.
// Thread rule: plain values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/wire.h"

namespace hvd {

// The numbers are those of hvd_failure_kind.
enum class OriginKind : uint8_t {
  none = 0,       // not known
  exception = 1,  // its program raised an exception and did not catch it
  exit = 2,       // its program exited
  signal = 3,     // a signal killed it
  lost = 4,       // its connections closed without a shutdown message
  shutdown = 5,   // it called shutdown while others needed it
  silent = 6,     // stopped, or unreachable
  internal = 7,   // an error of Horovod itself
  deadline = 8,   // it did not take part in time
};
inline constexpr OriginKind kLastOriginKind = OriginKind::deadline;

struct Origin {
  OriginKind kind = OriginKind::none;
  int32_t rank = -1;  // -1: not a single rank
  std::string host = {};
  int64_t pid = 0;
  std::string type = {};  // exception: its class, "ValueError"
  std::string text = {};  // exception: its message; exit, signal: the number

  bool is_known() const { return kind != OriginKind::none && rank >= 0; }
  bool operator==(const Origin&) const = default;
};

inline constexpr size_t kLongestOriginName = 256;   // of host and type; longer ones are truncated
inline constexpr size_t kLongestOriginText = 1024;  // of text

// "raised ValueError: bad batch", "fell silent": a phrase to follow its name.
std::string describe(const Origin& origin);

// The first `most` bytes of `text` at most, without splitting a character.
std::string_view shortened(std::string_view text, size_t most);

void encode(Encoder& out, const Origin& origin);
Origin decode_origin(Decoder& in);

}  // namespace hvd
