#include "net/greeting.h"

#include <algorithm>
#include <array>

namespace hvd {

Status carry(Handshake& handshake, Stream& stream) {
  std::array<std::byte, 128> buffer;
  for (;;) {
    while (!handshake.outgoing().empty()) {
      auto written = stream.write(handshake.outgoing());
      if (!written.ok()) return written.status();
      if (*written == 0) break;
      handshake.sent(*written);
    }
    size_t wanted = std::min(handshake.wanted(), buffer.size());
    if (wanted == 0) return {};
    auto read = stream.read(std::span(buffer).first(wanted));
    if (!read.ok()) return read.status();
    if (*read == 0) return {};
    handshake.receive(std::span(buffer).first(*read));
  }
}

}  // namespace hvd
