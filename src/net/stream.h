// A connected, authenticated, ordered byte stream to another process: a socket, plain or under TLS. Never blocks.
// Thread rule: one caller at a time.
#pragma once

#include <memory>
#include <span>

#include "base/fd.h"
#include "base/status.h"
#include "base/wire.h"

namespace hvd {

class Stream {
 public:
  virtual ~Stream() = default;
  // Move what can be moved now and say how much; 0: nothing at the moment. Not ok (peer_lost): the stream has ended,
  // with the reason.
  virtual Result<size_t> read(std::span<std::byte> into) = 0;
  virtual Result<size_t> write(ByteView from) = 0;
  virtual int descriptor() const = 0;
  virtual bool has_buffered() const = 0;  // TLS: bytes wait although the descriptor may not be readable
};

std::unique_ptr<Stream> make_plain_stream(UniqueFd socket);

}  // namespace hvd
