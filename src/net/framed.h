// Messages over a Stream: each is its length (4 bytes, little-endian) and its bytes. Thread rule: one thread at a time.
// Nothing here blocks.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <optional>

#include "base/status.h"
#include "base/wire.h"
#include "net/stream.h"

namespace hvd {

struct FrameLimits {
  size_t largest_received = 1 << 20;  // per message; checked before allocating memory for it
  size_t largest_sent = 1 << 20;
  size_t queued = 4 << 20;  // most unsent bytes; exceeding it is an error of the sender
};

// Splits bytes into messages. Memory grows with the bytes that arrived, not with the length that a header claims.
class FrameReader {
 public:
  explicit FrameReader(size_t largest) : largest_(largest) {}

  std::span<std::byte> space();  // buffer for the next bytes; never empty while status() is ok
  void filled(size_t count);     // `count` bytes of space() were filled
  std::optional<Bytes> take();   // the next whole message
  const Status& status() const { return status_; }

 private:
  size_t largest_;
  std::array<std::byte, 4> header_{};
  size_t in_header_ = 0;
  Bytes body_;
  size_t in_body_ = 0, length_ = 0;
  bool is_whole_ = false;
  Status status_;
};

class FramedStream {
 public:
  FramedStream(std::unique_ptr<Stream> stream, FrameLimits limits)
      : stream_(std::move(stream)), limits_(limits), reader_(limits.largest_received) {}

  // Queues the message, and sends as much as possible now.
  Status send(ByteView message);
  Status flush();
  bool has_unsent() const { return !outgoing_.empty(); }

  // The next message, or none at the moment; not ok: the stream has ended, or its bytes are not frames.
  Result<std::optional<Bytes>> receive();

  int descriptor() const { return stream_->descriptor(); }

 private:
  std::unique_ptr<Stream> stream_;
  FrameLimits limits_;
  FrameReader reader_;
  std::deque<Bytes> outgoing_;
  size_t sent_ = 0;    // bytes of the first message already sent
  size_t queued_ = 0;  // total bytes
};

}  // namespace hvd
