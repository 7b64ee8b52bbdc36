#include "net/stream.h"

#include <fmt/core.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

namespace hvd {
namespace {

class PlainStream : public Stream {
 public:
  explicit PlainStream(UniqueFd socket) : socket_(std::move(socket)) {}

  Result<size_t> read(std::span<std::byte> into) override {
    if (into.empty()) return size_t{0};
    return moved(::recv(socket_.get(), into.data(), into.size(), MSG_DONTWAIT), true);
  }
  Result<size_t> write(ByteView from) override {
    return moved(::send(socket_.get(), from.data(), from.size(), MSG_DONTWAIT | MSG_NOSIGNAL), false);
  }
  int descriptor() const override { return socket_.get(); }
  bool has_buffered() const override { return false; }

 private:
  static Result<size_t> moved(ssize_t count, bool zero_is_end) {
    if (count > 0 || (count == 0 && !zero_is_end)) return static_cast<size_t>(count);
    if (count == 0) return Status(Code::peer_lost, "connection closed by the peer");
    if (errno == EAGAIN || errno == EINTR) return size_t{0};
    return Status(Code::peer_lost, fmt::format("connection lost: {}", std::strerror(errno)));
  }

  UniqueFd socket_;
};

}  // namespace

std::unique_ptr<Stream> make_plain_stream(UniqueFd socket) { return std::make_unique<PlainStream>(std::move(socket)); }

}  // namespace hvd
