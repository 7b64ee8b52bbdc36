// A connected, authenticated, ordered byte stream to another process: a socket, plain (here) or under TLS (tls.h).
// Never blocks. Wait with epoll, edge-triggered (EPOLLIN | EPOLLOUT | EPOLLET), and try both directions after every
// event: under TLS a write may wait for bytes of the peer, and a read for room to send.
// Thread rule: one thread at a time.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "base/fd.h"
#include "base/status.h"
#include "base/wire.h"

namespace hvd {

// What is not bulk data (headers, control messages) is sent in whole cache lines. The kernel puts what a thread sends,
// to whomever, one behind the other into its pages. After a message of a few bytes the copy of a tensor that begins
// with a page lies those few bytes further in its own page, and there `rep movsb`, with which the kernel copies, is up
// to 25 times slower (AMD Zen 4, in cache: 46 GB/s with no shift, 1.4 with 1 byte, 3 with 8, 19 with 16, 34 with 64).
inline constexpr size_t kSendUnit = 64;

class Stream {
 public:
  virtual ~Stream() = default;
  // Move what can be moved now and say how much; 0: nothing at the moment. Not ok (peer_lost): the stream has ended,
  // with the reason. What a write did not take is offered again, first, by the next one.
  virtual Result<size_t> read(std::span<std::byte> into) = 0;
  virtual Result<size_t> write(ByteView from) = 0;
  virtual int descriptor() const = 0;
  virtual bool has_buffered() const = 0;  // TLS: bytes wait although the descriptor may not be readable
};

std::unique_ptr<Stream> make_plain_stream(UniqueFd socket);  // a connected stream socket, already non-blocking

}  // namespace hvd
