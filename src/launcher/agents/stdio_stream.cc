#include "launcher/agents/stdio_stream.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace hvd {
namespace {

class StdioStream : public Stream {
 public:
  Result<size_t> read(std::span<std::byte> into) override {
    ssize_t count = ::read(STDIN_FILENO, into.data(), into.size());
    if (count == 0 && !into.empty()) return Status(Code::peer_lost, "connection closed by the peer");
    return moved(count);
  }
  Result<size_t> write(ByteView from) override { return moved(::write(STDOUT_FILENO, from.data(), from.size())); }
  int descriptor() const override { return STDIN_FILENO; }
  bool has_buffered() const override { return false; }

 private:
  static Result<size_t> moved(ssize_t count) {
    if (count >= 0) return static_cast<size_t>(count);
    if (errno == EAGAIN || errno == EINTR) return size_t{0};
    return Status(Code::peer_lost, fmt::format("connection lost: {}", std::strerror(errno)));
  }
};

}  // namespace

std::unique_ptr<Stream> make_stdio_stream() {
  for (int fd : {STDIN_FILENO, STDOUT_FILENO}) ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
  return std::make_unique<StdioStream>();
}

}  // namespace hvd
