#include "net/stream.h"

#include <sys/socket.h>

#include <cstring>

namespace hvd {
namespace {

class PlainStream : public Stream {
 public:
  explicit PlainStream(UniqueFd socket) : socket_(std::move(socket)) {}

  Result<size_t> read(std::span<std::byte> into) override {
    ssize_t got = ::recv(socket_.get(), into.data(), into.size(), MSG_DONTWAIT);
    if (got > 0) return static_cast<size_t>(got);
    if (got == 0 && !into.empty()) return Status(Code::peer_lost, "the connection was closed");
    return moved_nothing();
  }
  Result<size_t> write(ByteView from) override {
    ssize_t sent = ::send(socket_.get(), from.data(), from.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent >= 0) return static_cast<size_t>(sent);
    return moved_nothing();
  }
  int descriptor() const override { return socket_.get(); }
  bool has_buffered() const override { return false; }

 private:
  static Result<size_t> moved_nothing() {
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return size_t{0};
    return Status(Code::peer_lost, std::strerror(errno));
  }
  UniqueFd socket_;
};

}  // namespace

std::unique_ptr<Stream> make_plain_stream(UniqueFd socket) { return std::make_unique<PlainStream>(std::move(socket)); }

}  // namespace hvd
