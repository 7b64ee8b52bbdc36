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
  size_t largest_received = 1 << 20;  // of one message; checked before anything is allocated for it
  size_t largest_sent = 1 << 20;
  size_t queued = 4 << 20;  // bytes that wait to be sent; more is an error of the sender
};

// Cuts bytes into messages. Memory follows what has arrived, not what a header promises.
class FrameReader {
 public:
  explicit FrameReader(size_t largest) : largest_(largest) {}

  std::span<std::byte> space();  // where the next bytes go; never empty while status() is ok
  void filled(size_t count);     // so many of space() were filled
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

  // Queues, and sends what can be sent now.
  Status send(ByteView message);
  Status flush();
  bool has_unsent() const { return !outgoing_.empty(); }

  // The next message, or nothing for the moment; not ok: the stream has ended, or its bytes are no frames.
  Result<std::optional<Bytes>> receive();

  int descriptor() const { return stream_->descriptor(); }

 private:
  std::unique_ptr<Stream> stream_;
  FrameLimits limits_;
  FrameReader reader_;
  std::deque<Bytes> outgoing_;
  size_t sent_ = 0;    // of the first
  size_t queued_ = 0;  // bytes in all
};

}  // namespace hvd
