#include "rendezvous/parcel.h"

#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "net/poller.h"

namespace hvd {
namespace {

constexpr uint32_t kParcel = 0x48565031;  // "HVP1"

Status gone() { return {Code::peer_lost, "the process at the other end is gone"}; }

}  // namespace

bool wait_readable(const UniqueFd& fd, TimePoint until, int interrupt) {
  pollfd wanted[] = {{.fd = fd.get(), .events = POLLIN, .revents = 0},
                     {.fd = interrupt, .events = POLLIN, .revents = 0}};
  // poll() may return early: because of a signal, or because its time-out has a maximum.
  for (;;) {
    int ready = ::poll(wanted, 2, milliseconds_until(until));
    if (ready > 0) return wanted[1].revents == 0;
    if (ready < 0 ? errno != EINTR : Clock::now() >= until) return false;
  }
}

bool is_readable(int fd) {
  pollfd wanted{.fd = fd, .events = POLLIN, .revents = 0};
  return fd >= 0 && ::poll(&wanted, 1, 0) > 0;
}

Status was_interrupted() { return {Code::aborted, "the world is no longer needed"}; }

bool send_message(const UniqueFd& socket, ByteView message, std::span<const int> fds) {
  iovec part{.iov_base = const_cast<std::byte*>(message.data()), .iov_len = message.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMostDescriptors)];
  msghdr head{};
  head.msg_iov = &part;
  head.msg_iovlen = 1;
  if (!fds.empty()) {
    head.msg_control = control;
    head.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* rights = CMSG_FIRSTHDR(&head);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(rights), fds.data(), fds.size_bytes());
  }
  return ::sendmsg(socket.get(), &head, MSG_NOSIGNAL) == static_cast<ssize_t>(message.size());
}

namespace {

// The length of the message, which may exceed the buffer; -1: none arrived.
ssize_t receive_bytes(const UniqueFd& socket, std::span<std::byte> message, std::vector<UniqueFd>& fds) {
  iovec part{.iov_base = message.data(), .iov_len = message.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMostDescriptors)];
  msghdr head{};
  head.msg_iov = &part;
  head.msg_iovlen = 1;
  head.msg_control = control;
  head.msg_controllen = sizeof control;
  ssize_t got = ::recvmsg(socket.get(), &head, MSG_CMSG_CLOEXEC | MSG_TRUNC);
  for (cmsghdr* rights = CMSG_FIRSTHDR(&head); got >= 0 && rights != nullptr; rights = CMSG_NXTHDR(&head, rights)) {
    if (rights->cmsg_level != SOL_SOCKET || rights->cmsg_type != SCM_RIGHTS) continue;
    size_t count = (rights->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; i++) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(rights) + i * sizeof(int), sizeof fd);
      fds.emplace_back(fd);
    }
  }
  return got;
}

}  // namespace

bool receive_message(const UniqueFd& socket, std::span<std::byte> message, std::vector<UniqueFd>& fds) {
  return receive_bytes(socket, message, fds) == static_cast<ssize_t>(message.size());
}

Bytes receive_up_to(const UniqueFd& socket, size_t most, std::vector<UniqueFd>& fds) {
  Bytes message(most);
  ssize_t got = receive_bytes(socket, message, fds);
  message.resize(got < 0 || static_cast<size_t>(got) > most ? 0 : static_cast<size_t>(got));
  return message;
}

Status send_parcel(const UniqueFd& socket, ByteView bytes) {
  UniqueFd memory(::memfd_create("horovod parcel", MFD_CLOEXEC));
  if (!memory) return system_error("cannot create a memory object", "");
  for (ByteView left = bytes; !left.empty();) {
    ssize_t written = ::write(memory.get(), left.data(), left.size());
    if (written < 0 && errno != EINTR) return system_error("cannot fill a memory object", "");
    if (written > 0) left = left.subspan(static_cast<size_t>(written));
  }
  int fd = memory.get();
  if (!send_message(socket, std::as_bytes(std::span(&kParcel, 1)), {&fd, 1})) return gone();
  return {};
}

Result<Bytes> receive_parcel(const UniqueFd& socket, TimePoint until, int interrupt) {
  if (!wait_readable(socket, until, interrupt)) return Status(Code::timed_out, "nothing came in time");
  uint32_t magic = 0;
  std::vector<UniqueFd> fds;
  if (!receive_message(socket, std::as_writable_bytes(std::span(&magic, 1)), fds) || magic != kParcel ||
      fds.size() != 1) {
    return gone();
  }
  struct stat about {};
  if (::fstat(fds[0].get(), &about) != 0) return system_error("cannot look at a memory object", "");
  Bytes bytes(static_cast<size_t>(about.st_size));
  for (size_t at = 0; at < bytes.size();) {
    ssize_t got = ::pread(fds[0].get(), bytes.data() + at, bytes.size() - at, static_cast<off_t>(at));
    if (got <= 0) return system_error("cannot read a memory object", "");
    at += static_cast<size_t>(got);
  }
  return bytes;
}

}  // namespace hvd
