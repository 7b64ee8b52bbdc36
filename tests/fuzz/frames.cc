// Feeds the reader of frames with anything, in pieces of any size: its messages are those of a plain reading, and its
// memory grows with the bytes that arrived.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "net/framed.h"

namespace hvd {
namespace {

constexpr size_t kLargest = 1000;

struct Outcome {
  std::vector<Bytes> messages;
  bool ended = false;  // by a message that is too large
  bool operator==(const Outcome&) const = default;
};

Outcome read_plainly(ByteView bytes) {
  Outcome outcome;
  while (bytes.size() >= 4) {
    size_t length = 0;
    for (size_t i = 0; i < 4; i++) length |= static_cast<size_t>(bytes[i]) << (8 * i);
    outcome.ended = length > kLargest;
    if (outcome.ended || bytes.size() - 4 < length) break;
    outcome.messages.emplace_back(bytes.begin() + 4, bytes.begin() + 4 + static_cast<ptrdiff_t>(length));
    bytes = bytes.subspan(4 + length);
  }
  return outcome;
}

Outcome read_in_pieces(ByteView bytes, size_t piece) {
  Outcome outcome;
  FrameReader reader(kLargest);
  while (!bytes.empty() && reader.status().ok()) {
    auto space = reader.space();
    if (space.empty() || space.size() > kLargest) std::abort();
    size_t count = std::min({bytes.size(), space.size(), piece});
    std::memcpy(space.data(), bytes.data(), count);
    reader.filled(count);
    bytes = bytes.subspan(count);
    if (auto message = reader.take()) outcome.messages.push_back(std::move(*message));
  }
  outcome.ended = !reader.status().ok();
  return outcome;
}

}  // namespace
}  // namespace hvd

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  hvd::ByteView bytes = std::as_bytes(std::span(data + 1, size - 1));
  if (hvd::read_in_pieces(bytes, size_t{data[0]} + 1) != hvd::read_plainly(bytes)) std::abort();
  return 0;
}
