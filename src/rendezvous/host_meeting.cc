#include "rendezvous/host_meeting.h"

#include <fmt/core.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cstring>

#include "base/bell.h"
#include "base/joined.h"
#include "base/log.h"
#include "rendezvous/parcel.h"

namespace hvd {
namespace {

constexpr uint32_t kMagic = 0x48564432;  // "HVD2": also the version of what follows
constexpr int32_t kMostRanks = 128;
constexpr Duration kPatienceForWelcome = std::chrono::seconds(2);  // the leader explains itself at its own deadline

struct Hello {
  uint32_t magic = kMagic;
  int32_t rank = 0, size = 0, local_rank = 0, local_size = 0, pid = 0;
  uint16_t port = 0;
};

struct HostWelcome {
  uint32_t magic = kMagic;
  uint32_t accepted = 0;
  char refusal[512] = {};
  int32_t ranks[kMostRanks] = {};  // of the world, by local rank
  int32_t pids[kMostRanks] = {};
};

Hello hello_of(const World& world, uint16_t port) {
  return {.rank = world.rank,
          .size = world.size,
          .local_rank = world.local_rank,
          .local_size = world.local_size,
          .pid = ::getpid(),
          .port = port};
}

sockaddr_un address_of(const World& world, socklen_t& length) {
  std::string name =
      fmt::format("horovod/{}/{}/{}/{}", ::getuid(), world.job, world.host, static_cast<uint64_t>(world.generation));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (name.size() > sizeof address.sun_path - 1) {  // the end, which tells hosts and generations apart, must count
    uint64_t hash = 14695981039346656037u;          // FNV-1a
    for (char letter : name) hash = (hash ^ static_cast<unsigned char>(letter)) * 1099511628211u;
    name = fmt::format("{}/{:016x}", name.substr(0, sizeof address.sun_path - 18), hash);
  }
  size_t count = name.size();
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

template <class Message>
ByteView bytes_of(const Message& message) {
  return std::as_bytes(std::span(&message, 1));
}

template <class Message>
bool receive(const UniqueFd& socket, Message& message, std::vector<UniqueFd>& fds) {
  return receive_message(socket, std::as_writable_bytes(std::span(&message, 1)), fds) && message.magic == kMagic;
}

// Everybody's place in the group, from the leader's list.
void fill_in(HostGroup& group, const World& world, const HostWelcome& welcome) {
  group.rank = world.local_rank;
  group.size = world.local_size;
  group.rank_names.resize(static_cast<size_t>(world.size));
  for (size_t local = 0; local < static_cast<size_t>(world.local_size); local++) {
    int32_t rank = welcome.ranks[local];
    group.world_ranks.push_back(rank);
    group.rank_names[static_cast<size_t>(rank)] =
        fmt::format("rank {} ({}, pid {})", rank, world.host, welcome.pids[local]);
  }
}

// ---- the leader ----

class Leader {
 public:
  Leader(const World& world, uint16_t port, TimePoint deadline, int interrupt)
      : world_(world), deadline_(deadline), interrupt_(interrupt) {
    size_t size = static_cast<size_t>(world.local_size);
    met_.group.bells.resize(size);
    met_.group.sockets.resize(size);
    met_.pids.resize(size);
    met_.ports.resize(size);
    welcome_.accepted = 1;
    note(0, world.rank, ::getpid(), port);
  }

  Result<HostMeeting> meet(UniqueFd memory) {
    met_.group.memory = std::move(memory);
    auto bell = create_bell();
    if (!bell.ok()) return bell.status();
    met_.group.bells[0] = std::move(*bell);
    if (Status status = listen(); !status.ok()) return status;
    for (missing_ = world_.local_size - 1; missing_ > 0;) {
      if (!wait_readable(listener_, deadline_, interrupt_)) return give_up();
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
                          "(is another local rank 0 of the same job running?)");
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
    if (!wait_readable(socket, deadline_, interrupt_) || !receive(socket, hello, fds) || fds.size() != 1) {
      log_warning("ignored a connection that did not introduce itself");
      return {};
    }
    if (Status status = check(hello); !status.ok()) {
      refuse(socket, status);
      return status;
    }
    size_t local = static_cast<size_t>(hello.local_rank);
    met_.group.sockets[local] = std::move(socket);
    met_.group.bells[local] = std::move(fds[0]);
    note(local, hello.rank, hello.pid, hello.port);
    missing_--;
    return {};
  }

  Status check(const Hello& hello) const {
    auto bad = [](std::string text) { return Status(Code::invalid_argument, std::move(text)); };
    if (hello.size != world_.size || hello.rank < 0 || hello.rank >= world_.size) {
      return bad(fmt::format(
          "pid {} says it is rank {} of {}, but rank {} (pid {}) is in a world of {}; check HOROVOD_RANK and "
          "HOROVOD_SIZE",
          hello.pid, hello.rank, hello.size, world_.rank, ::getpid(), world_.size));
    }
    if (hello.local_size != world_.local_size || hello.local_rank < 1 || hello.local_rank >= world_.local_size) {
      return bad(
          fmt::format("rank {} (pid {}) says it is local rank {} of {}, but rank {} (pid {}) is one of {} on {}; check "
                      "HOROVOD_LOCAL_RANK and HOROVOD_LOCAL_SIZE",
                      hello.rank, hello.pid, hello.local_rank, hello.local_size, world_.rank, ::getpid(),
                      world_.local_size, world_.host));
    }
    for (size_t local = 0; local < met_.pids.size(); local++) {
      bool same_rank = welcome_.ranks[local] == hello.rank;
      if (met_.pids[local] == 0 || (!same_rank && local != static_cast<size_t>(hello.local_rank))) continue;
      return bad(fmt::format("two processes say they are {} {}: pid {} and pid {}", same_rank ? "rank" : "local rank",
                             same_rank ? hello.rank : hello.local_rank, met_.pids[local], hello.pid));
    }
    return {};
  }

  void note(size_t local, int32_t rank, int32_t pid, uint16_t port) {
    welcome_.ranks[local] = rank;
    welcome_.pids[local] = met_.pids[local] = pid;
    met_.ports[local] = port;
  }

  Status give_up() {
    if (is_readable(interrupt_)) return refuse_all(was_interrupted());
    std::vector<size_t> missing;
    for (size_t local = 1; local < met_.pids.size(); local++) {
      if (met_.pids[local] == 0) missing.push_back(local);
    }
    bool is_whole_world = world_.local_size == world_.size;
    return refuse_all(
        {Code::unknown,
         fmt::format("the world did not form in time: of {} ranks on {}, these {}never came: {} "
                     "(HOROVOD_START_TIMEOUT)",
                     world_.local_size, world_.host, is_whole_world ? "" : "local ranks ", joined(missing, ", "))});
  }

  static void refuse(const UniqueFd& socket, const Status& status) {
    HostWelcome refusal;
    status.message().copy(refusal.refusal, sizeof refusal.refusal - 1);
    send_message(socket, bytes_of(refusal), {});
  }

  Status refuse_all(Status status) {
    for (const UniqueFd& socket : met_.group.sockets) {
      if (socket) refuse(socket, status);
    }
    return status;
  }

  Result<HostMeeting> welcome_all() {
    fill_in(met_.group, world_, welcome_);
    std::vector<int> fds{met_.group.memory.get()};
    for (const UniqueFd& bell : met_.group.bells) fds.push_back(bell.get());
    for (size_t local = 1; local < met_.group.sockets.size(); local++) {
      if (!send_message(met_.group.sockets[local], bytes_of(welcome_), fds)) {
        size_t rank = static_cast<size_t>(met_.group.world_ranks[local]);
        return refuse_all(
            {Code::peer_lost, fmt::format("{} is gone before the world formed", met_.group.rank_names[rank])});
      }
    }
    return std::move(met_);
  }

  const World& world_;
  TimePoint deadline_;
  int interrupt_;
  HostMeeting met_;
  HostWelcome welcome_;
  UniqueFd listener_;
  int32_t missing_ = 0;
};

// ---- the others ----

// The leader may not listen yet, and nothing tells when it does; looking again soon is a matter of start-up only.
Result<UniqueFd> connect_to_leader(const World& world, TimePoint deadline, int interrupt) {
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
      return Status(Code::unknown,
                    fmt::format("the world did not form in time: rank {} of {} on {} never met "
                                "{}rank 0 (HOROVOD_START_TIMEOUT)",
                                world.rank, world.size, world.host, world.local_size == world.size ? "" : "local "));
    }
    (void)wait_readable(UniqueFd(), Clock::now() + pause, interrupt);
    if (is_readable(interrupt)) return was_interrupted();
    pause = std::min<Duration>(pause * 2, std::chrono::milliseconds(10));
  }
}

Result<HostMeeting> join(const World& world, uint16_t port, TimePoint deadline, int interrupt) {
  auto socket = connect_to_leader(world, deadline, interrupt);
  if (!socket.ok()) return socket.status();
  auto bell = create_bell();
  if (!bell.ok()) return bell.status();
  HostWelcome welcome;
  std::vector<UniqueFd> fds;
  int fd = bell->get();
  if (!send_message(*socket, bytes_of(hello_of(world, port)), {&fd, 1}) ||
      !wait_readable(*socket, deadline + kPatienceForWelcome, interrupt) || !receive(*socket, welcome, fds)) {
    if (is_readable(interrupt)) return was_interrupted();
    return Status(Code::peer_lost, fmt::format("local rank 0 of {} went away before the world formed", world.host));
  }
  if (welcome.accepted == 0) {
    welcome.refusal[sizeof welcome.refusal - 1] = 0;
    return Status(Code::unknown, welcome.refusal);
  }
  if (fds.size() != static_cast<size_t>(world.local_size) + 1) {
    return Status(Code::unknown, "this process may not open enough files (ulimit -n) to meet the other ranks");
  }
  HostMeeting met;
  met.group.memory = std::move(fds[0]);
  for (size_t i = 1; i < fds.size(); i++) met.group.bells.push_back(std::move(fds[i]));
  met.group.sockets.push_back(std::move(*socket));
  fill_in(met.group, world, welcome);
  return met;
}

}  // namespace

Result<HostMeeting> meet_on_host(const World& world, UniqueFd memory, uint16_t port, TimePoint deadline,
                                 int interrupt) {
  if (world.local_size > kMostRanks) {
    return Status(Code::invalid_argument,
                  fmt::format("{} processes on one host are more than the {} supported", world.local_size, kMostRanks));
  }
  if (world.local_rank == 0) return Leader(world, port, deadline, interrupt).meet(std::move(memory));
  return join(world, port, deadline, interrupt);
}

}  // namespace hvd
