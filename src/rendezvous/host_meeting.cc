#include "rendezvous/host_meeting.h"

#include <fmt/core.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <thread>

#include "base/bell.h"
#include "base/log.h"

namespace hvd {
namespace {

constexpr uint32_t kMagic = 0x48564431;  // "HVD1": also the version of what follows
constexpr int32_t kMostRanks = 128;
constexpr size_t kHostBytes = 64;
constexpr Duration kPatienceForWelcome = std::chrono::seconds(2);  // rank 0 explains itself at its own deadline

struct Hello {
  uint32_t magic = kMagic;
  int32_t rank = 0, size = 0, pid = 0;
  char host[kHostBytes] = {};
};

struct Welcome {
  uint32_t magic = kMagic;
  uint32_t accepted = 0;
  char refusal[512] = {};
  int32_t pids[kMostRanks] = {};
};

Hello hello_of(const World& world) {
  Hello hello{.rank = world.rank, .size = world.size, .pid = ::getpid()};
  world.host.copy(hello.host, kHostBytes - 1);
  return hello;
}

sockaddr_un address_of(const World& world, socklen_t& length) {
  std::string name =
      fmt::format("horovod/{}/{}/{}/{}", ::getuid(), world.job, world.host, static_cast<uint64_t>(world.generation));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  size_t count = std::min(name.size(), sizeof address.sun_path - 1);
  std::memcpy(address.sun_path + 1, name.data(), count);  // a leading zero byte: the abstract name space
  length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + count);
  return address;
}

bool is_same_user(const UniqueFd& socket) {
  ucred peer{};
  socklen_t length = sizeof peer;
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) return false;
  return peer.uid == ::getuid();
}

int milliseconds_until(TimePoint time) {
  return static_cast<int>(std::clamp(seconds_of(time - Clock::now()) * 1e3 + 1, 0.0, 1e6));
}

bool wait_readable(const UniqueFd& fd, TimePoint until) {
  pollfd wanted{.fd = fd.get(), .events = POLLIN, .revents = 0};
  int ready = 0;
  do {
    ready = ::poll(&wanted, 1, milliseconds_until(until));
  } while (ready < 0 && errno == EINTR);
  return ready > 0;
}

template <class Message>
bool send_message(const UniqueFd& socket, const Message& message, const std::vector<int>& fds) {
  iovec part{.iov_base = const_cast<Message*>(&message), .iov_len = sizeof message};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * (kMostRanks + 1))];
  msghdr head{};
  head.msg_iov = &part;
  head.msg_iovlen = 1;
  if (!fds.empty()) {
    head.msg_control = control;
    head.msg_controllen = CMSG_SPACE(sizeof(int) * fds.size());
    cmsghdr* rights = CMSG_FIRSTHDR(&head);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int) * fds.size());
    std::memcpy(CMSG_DATA(rights), fds.data(), sizeof(int) * fds.size());
  }
  return ::sendmsg(socket.get(), &head, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof message);
}

template <class Message>
bool receive_message(const UniqueFd& socket, Message& message, std::vector<UniqueFd>& fds) {
  iovec part{.iov_base = &message, .iov_len = sizeof message};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * (kMostRanks + 1))];
  msghdr head{};
  head.msg_iov = &part;
  head.msg_iovlen = 1;
  head.msg_control = control;
  head.msg_controllen = sizeof control;
  ssize_t got = ::recvmsg(socket.get(), &head, MSG_CMSG_CLOEXEC);
  for (cmsghdr* rights = CMSG_FIRSTHDR(&head); got >= 0 && rights != nullptr; rights = CMSG_NXTHDR(&head, rights)) {
    if (rights->cmsg_level != SOL_SOCKET || rights->cmsg_type != SCM_RIGHTS) continue;
    size_t count = (rights->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; i++) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(rights) + i * sizeof(int), sizeof fd);
      fds.emplace_back(fd);
    }
  }
  return got == static_cast<ssize_t>(sizeof message) && message.magic == kMagic;
}

std::string rank_name(int32_t rank, const char* host, int32_t pid) {
  return fmt::format("rank {} ({}, pid {})", rank, host, pid);
}

// ---- rank 0 ----

class Host {
 public:
  Host(const World& world, TimePoint deadline) : world_(world), deadline_(deadline) {
    group_.rank = 0;
    group_.size = world.size;
    group_.bells.resize(static_cast<size_t>(world.size));
    group_.sockets.resize(static_cast<size_t>(world.size));
    group_.world_ranks.resize(static_cast<size_t>(world.size));
    std::iota(group_.world_ranks.begin(), group_.world_ranks.end(), 0);
    group_.rank_names.resize(static_cast<size_t>(world.size));
    group_.rank_names[0] = rank_name(0, world.host.c_str(), ::getpid());
    welcome_.accepted = 1;
    welcome_.pids[0] = ::getpid();
  }

  Result<HostGroup> meet(UniqueFd memory) {
    group_.memory = std::move(memory);
    auto bell = create_bell();
    if (!bell.ok()) return bell.status();
    group_.bells[0] = std::move(*bell);
    if (Status status = listen(); !status.ok()) return status;
    for (missing_ = world_.size - 1; missing_ > 0;) {
      if (!wait_readable(listener_, deadline_)) return give_up();
      if (Status status = let_in(); !status.ok()) return refuse_all(status);
    }
    return welcome_all();
  }

 private:
  Status listen() {
    listener_ = UniqueFd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    if (!listener_) return system_error("cannot create a Unix socket", "");
    socklen_t length = 0;
    sockaddr_un address = address_of(world_, length);
    if (::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), length) != 0) {
      return system_error("cannot open the meeting of this host's ranks",
                          "(is another rank 0 of the same job running?)");
    }
    if (::listen(listener_.get(), kMostRanks) != 0) return system_error("cannot listen on a Unix socket", "");
    return {};
  }

  Status let_in() {
    UniqueFd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!socket) return {};
    if (!is_same_user(socket)) {
      log_warning("refused a connection of another user to the meeting of this host's ranks");
      return {};
    }
    Hello hello;
    std::vector<UniqueFd> fds;
    if (!wait_readable(socket, deadline_) || !receive_message(socket, hello, fds) || fds.size() != 1) {
      log_warning("ignored a connection that did not introduce itself");
      return {};
    }
    hello.host[kHostBytes - 1] = 0;
    if (hello.size != world_.size || hello.rank < 1 || hello.rank >= world_.size) {
      return {Code::invalid_argument,
              fmt::format(
                  "pid {} says it is rank {} of {}, but rank 0 (pid {}) is in a world of {}; check HOROVOD_RANK and "
                  "HOROVOD_SIZE",
                  hello.pid, hello.rank, hello.size, ::getpid(), world_.size)};
    }
    size_t rank = static_cast<size_t>(hello.rank);
    if (group_.sockets[rank]) {
      return {Code::invalid_argument, fmt::format("two processes say they are rank {}: pid {} and pid {}", hello.rank,
                                                  welcome_.pids[rank], hello.pid)};
    }
    group_.sockets[rank] = std::move(socket);
    group_.bells[rank] = std::move(fds[0]);
    group_.rank_names[rank] = rank_name(hello.rank, hello.host, hello.pid);
    welcome_.pids[rank] = hello.pid;
    missing_--;
    return {};
  }

  Status give_up() {
    std::string missing;
    for (int32_t rank = 1; rank < world_.size; rank++) {
      if (!group_.sockets[static_cast<size_t>(rank)]) missing += fmt::format("{}{}", missing.empty() ? "" : ", ", rank);
    }
    return refuse_all(
        {Code::unknown, fmt::format("the world did not form in time: of {} ranks on {}, these never came: {} "
                                    "(HOROVOD_START_TIMEOUT)",
                                    world_.size, world_.host, missing)});
  }

  Status refuse_all(Status status) {
    Welcome refusal;
    status.message().copy(refusal.refusal, sizeof refusal.refusal - 1);
    for (const UniqueFd& socket : group_.sockets) {
      if (socket) send_message(socket, refusal, {});
    }
    return status;
  }

  Result<HostGroup> welcome_all() {
    std::vector<int> fds{group_.memory.get()};
    for (const UniqueFd& bell : group_.bells) fds.push_back(bell.get());
    for (size_t rank = 1; rank < group_.sockets.size(); rank++) {
      if (!send_message(group_.sockets[rank], welcome_, fds)) {
        return refuse_all(
            {Code::peer_lost, fmt::format("{} is gone before the world formed", group_.rank_names[rank])});
      }
    }
    return std::move(group_);
  }

  const World& world_;
  TimePoint deadline_;
  HostGroup group_;
  Welcome welcome_;
  UniqueFd listener_;
  int32_t missing_ = 0;
};

// ---- the others ----

// Rank 0 may not listen yet, and nothing tells when it does; looking again soon is a matter of start-up only.
Result<UniqueFd> connect_to_root(const World& world, TimePoint deadline) {
  socklen_t length = 0;
  sockaddr_un address = address_of(world, length);
  Duration pause = std::chrono::microseconds(200);
  for (;;) {
    UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    if (!socket) return system_error("cannot create a Unix socket", "");
    if (::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), length) == 0) {
      if (!is_same_user(socket))
        return Status(Code::unknown, "the meeting of this host's ranks belongs to another user");
      return socket;
    }
    if (errno != ECONNREFUSED && errno != EINTR && errno != EAGAIN) {
      return system_error("cannot join the meeting of this host's ranks", "");
    }
    if (Clock::now() + pause > deadline) {
      return Status(Code::unknown, fmt::format("the world did not form in time: rank {} of {} on {} never met rank 0 "
                                               "(HOROVOD_START_TIMEOUT)",
                                               world.rank, world.size, world.host));
    }
    std::this_thread::sleep_for(pause);
    pause = std::min<Duration>(pause * 2, std::chrono::milliseconds(10));
  }
}

Result<HostGroup> join(const World& world, TimePoint deadline) {
  auto socket = connect_to_root(world, deadline);
  if (!socket.ok()) return socket.status();
  auto bell = create_bell();
  if (!bell.ok()) return bell.status();
  Welcome welcome;
  std::vector<UniqueFd> fds;
  if (!send_message(*socket, hello_of(world), {bell->get()}) ||
      !wait_readable(*socket, deadline + kPatienceForWelcome) || !receive_message(*socket, welcome, fds)) {
    return Status(Code::peer_lost, "rank 0 went away before the world formed");
  }
  if (welcome.accepted == 0) {
    welcome.refusal[sizeof welcome.refusal - 1] = 0;
    return Status(Code::unknown, welcome.refusal);
  }
  if (fds.size() != static_cast<size_t>(world.size) + 1) {
    return Status(Code::unknown, "this process may not open enough files (ulimit -n) to meet the other ranks");
  }
  HostGroup group;
  group.rank = world.rank;
  group.size = world.size;
  group.memory = std::move(fds[0]);
  for (int32_t rank = 0; rank < world.size; rank++) {
    size_t index = static_cast<size_t>(rank);
    group.bells.push_back(std::move(fds[index + 1]));
    group.world_ranks.push_back(rank);
    group.rank_names.push_back(rank_name(rank, world.host.c_str(), welcome.pids[index]));
  }
  group.sockets.push_back(std::move(*socket));
  return group;
}

}  // namespace

Result<HostGroup> meet_on_host(const World& world, UniqueFd memory, Duration timeout) {
  if (world.size > kMostRanks) {
    return Status(Code::invalid_argument,
                  fmt::format("{} processes on one host are more than the {} supported", world.size, kMostRanks));
  }
  TimePoint deadline = Clock::now() + timeout;
  if (world.rank == 0) return Host(world, deadline).meet(std::move(memory));
  return join(world, deadline);
}

}  // namespace hvd
