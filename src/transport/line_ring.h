// A stream of frames through a ring of lines in shared memory: one writer, one or more readers, each with its own
// position. A line is a cache line: it holds its number and the next bytes of the stream, so that a small message
// travels in one line and a waiting reader polls only that. Lines are numbered from 1 and positions count lines, so
// `written - read` lines are in between. A frame is a 32-bit length and the message. It starts on a new line; a frame
// longer than the ring passes through it in parts.
//
// Ordering. A line has one writer, which stores its number with release after its bytes; a reader loads the number with
// acquire before it reads them. A line is reused only after all readers have published, with release, that they have
// read it. Thread rule: the owner's.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstring>
#include <span>

#include "base/round_up.h"
#include "base/wire.h"

namespace hvd {

inline constexpr size_t kLineBytes = 56;

struct alignas(64) MessageLine {
  std::atomic<uint64_t> number{0};
  std::byte bytes[kLineBytes] = {};
};
static_assert(sizeof(MessageLine) == 64);

inline constexpr size_t kFrameHead = sizeof(uint32_t);
inline constexpr size_t kLargestFrame = 256 << 20;

// Appends the message as a frame that fills whole lines.
inline void append_frame(Bytes& out, ByteView message) {
  uint32_t length = static_cast<uint32_t>(message.size());
  size_t at = out.size();
  out.resize(at + round_up(kFrameHead + message.size(), kLineBytes));
  std::memcpy(out.data() + at, &length, kFrameHead);
  if (length > 0) std::memcpy(out.data() + at + kFrameHead, message.data(), message.size());
}

// Writes as many of the lines into the ring as fit, and returns their number.
inline size_t put(std::span<MessageLine> ring, uint64_t written, uint64_t read, ByteView lines) {
  size_t count = std::min(ring.size() - static_cast<size_t>(written - read), lines.size() / kLineBytes);
  for (size_t i = 0; i < count; i++) {
    MessageLine& line = ring[(written + i) % ring.size()];
    std::memcpy(line.bytes, lines.data() + i * kLineBytes, kLineBytes);
    line.number.store(written + i + 1, std::memory_order_release);
  }
  return count;
}

inline bool has_line(std::span<const MessageLine> ring, uint64_t read) {
  return ring[read % ring.size()].number.load(std::memory_order_acquire) == read + 1;
}

// Reassembles frames.
class RingReader {
 public:
  // Takes lines from the ring, advancing `read`, until one frame is complete or there are no more. The message stays
  // valid until the next call.
  bool take(std::span<const MessageLine> ring, uint64_t& read, ByteView& message) {
    if (complete_) {
      frame_.clear();
      complete_ = false;
    }
    while (!broken() && has_line(ring, read)) {
      const MessageLine& line = ring[read % ring.size()];
      frame_.insert(frame_.end(), line.bytes, line.bytes + kLineBytes);
      read++;
      if (broken() || frame_.size() < kFrameHead + length()) continue;
      complete_ = true;
      message = ByteView(frame_).subspan(kFrameHead, length());
      return true;
    }
    return false;
  }
  // The length of the frame is one that our writer never produces.
  bool broken() const { return frame_.size() >= kFrameHead && length() > kLargestFrame; }

 private:
  uint32_t length() const {
    uint32_t length = 0;
    std::memcpy(&length, frame_.data(), kFrameHead);
    return length;
  }

  Bytes frame_;
  bool complete_ = false;
};

}  // namespace hvd
