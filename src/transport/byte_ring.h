// A stream of frames through a ring of bytes in shared memory: one writer, one or more readers with positions of their
// own. Positions count all bytes ever written or read, so `written - read` is what lies in between.
// A frame is a 32-bit length and the message; it may be longer than the ring and then passes through it in parts.
// Thread rule: the owner's; positions are published by the caller with release and read with acquire.
#pragma once

#include <algorithm>
#include <cstring>
#include <span>

#include "base/wire.h"

namespace hvd {

inline constexpr size_t kFrameHead = sizeof(uint32_t);
inline constexpr size_t kLargestFrame = 256 << 20;

// Puts as much of `bytes` into the ring as fits and returns how much that was.
inline size_t put(std::span<std::byte> ring, uint64_t written, uint64_t read, ByteView bytes) {
  size_t room = ring.size() - static_cast<size_t>(written - read);
  size_t count = std::min(room, bytes.size());
  size_t at = written % ring.size();
  size_t first = std::min(count, ring.size() - at);
  std::memcpy(ring.data() + at, bytes.data(), first);
  if (count > first) std::memcpy(ring.data(), bytes.data() + first, count - first);
  return count;
}

inline void append_frame(Bytes& out, ByteView message) {
  uint32_t length = static_cast<uint32_t>(message.size());
  auto head = std::as_bytes(std::span(&length, 1));
  out.insert(out.end(), head.begin(), head.end());
  out.insert(out.end(), message.begin(), message.end());
}

// Puts frames together again.
class RingReader {
 public:
  // Takes bytes from the ring, advancing `read`, until one frame is complete or there are no more. The message stays
  // valid until the next call.
  bool take(std::span<const std::byte> ring, uint64_t written, uint64_t& read, ByteView& message) {
    if (complete_) {
      frame_.clear();
      complete_ = false;
    }
    while (read != written) {
      size_t want = missing();
      size_t at = read % ring.size();
      size_t count = std::min({want, static_cast<size_t>(written - read), ring.size() - at});
      frame_.insert(frame_.end(), ring.data() + at, ring.data() + at + count);
      read += count;
      if (broken()) return false;
      if (frame_.size() >= kFrameHead && missing() == 0) {
        complete_ = true;
        message = ByteView(frame_).subspan(kFrameHead);
        return true;
      }
    }
    return false;
  }
  // The writer claims a frame no writer of ours makes.
  bool broken() const { return frame_.size() >= kFrameHead && length() > kLargestFrame; }

 private:
  uint32_t length() const {
    uint32_t length = 0;
    std::memcpy(&length, frame_.data(), kFrameHead);
    return length;
  }
  size_t missing() const {
    if (frame_.size() < kFrameHead) return kFrameHead - frame_.size();
    return kFrameHead + length() - frame_.size();
  }

  Bytes frame_;
  bool complete_ = false;
};

}  // namespace hvd
