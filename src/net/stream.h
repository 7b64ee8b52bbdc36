// A connected, ordered byte stream to another process: a socket, plain (here) or with TLS (tls.h). Never blocks. Wait
// with epoll, edge-triggered (EPOLLIN | EPOLLOUT | EPOLLET), and try both directions after every event: with TLS a
// write may wait for bytes of the peer, and a read for room to send. Thread rule: one thread at a time.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "base/fd.h"
#include "base/status.h"
#include "base/wire.h"

namespace hvd {

// Everything except bulk data (headers, control messages) is sent in whole cache lines. The kernel copies the sends of
// a thread, to any peer, one after another into its pages. After a message of a few bytes, a tensor that starts at a
// page boundary is copied to an address shifted by those few bytes, and `rep movsb`, which the kernel uses to copy, is
// then up to 25 times slower (AMD Zen 4, in cache: 46 GB/s with no shift, 1.4 with 1 byte, 3 with 8, 19 with 16, 34
// with 64).
inline constexpr size_t kSendUnit = 64;

class Stream {
 public:
  virtual ~Stream() = default;
  // Move as much as possible now and return the number of bytes; 0: none at the moment. Not ok (peer_lost): the stream
  // has ended; the message has the reason. After a partial write, offer the rest first in the next one.
  virtual Result<size_t> read(std::span<std::byte> into) = 0;
  virtual Result<size_t> write(ByteView from) = 0;
  virtual int descriptor() const = 0;
  virtual bool has_buffered() const = 0;  // TLS: data is buffered although the descriptor may not be readable
};

std::unique_ptr<Stream> make_plain_stream(UniqueFd socket);  // from a connected, non-blocking stream socket

}  // namespace hvd
