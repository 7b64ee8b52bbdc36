// How a fuzzer's input is cut into steps, and how the corpus generator writes them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>

#include "base/wire.h"

namespace hvd {

struct Step {
  uint8_t rank = 0;    // 0..3
  bool waits = false;  // much time passes before it
  ByteView message;
};

class Steps {
 public:
  explicit Steps(ByteView input) : in_(input) {}

  std::optional<Step> next() {
    if (in_.at_end()) return std::nullopt;
    uint8_t head = in_.u8();
    size_t length = std::min<size_t>(in_.at_end() ? 0 : in_.u8(), in_.left());
    return Step{.rank = static_cast<uint8_t>(head & 3), .waits = (head & 4) != 0, .message = in_.bytes(length)};
  }

 private:
  Decoder in_;
};

inline void write_step(Bytes& out, const Step& step) {
  Encoder encoder(out);
  encoder.u8(static_cast<uint8_t>(step.rank | (step.waits ? 4 : 0)));
  encoder.u8(static_cast<uint8_t>(step.message.size()));
  encoder.bytes(step.message.first(step.message.size() & 0xff));
}

}  // namespace hvd
