#include "rendezvous/host_leader.h"

#include <fmt/core.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/bell.h"
#include "base/joined.h"
#include "base/log.h"
#include "net/poller.h"
#include "rendezvous/parcel.h"

namespace hvd {
namespace {

constexpr size_t kMostCallers = 256;  // without a proof so far; beyond this number the oldest is closed
constexpr int kMostReported = 3;      // failed connections

void refuse(const UniqueFd& socket, const Status& status) {
  HostWelcome refusal;
  refusal.code = static_cast<int32_t>(status.code());
  status.message().copy(refusal.refusal, sizeof refusal.refusal - 1);
  if (status.origin().kind == OriginKind::lost) {
    refusal.lost_rank = status.origin().rank;
    refusal.lost_pid = static_cast<int32_t>(status.origin().pid);
  }
  send_message(socket, bytes_of_message(refusal), {});
}

bool has_a_listener(const sockaddr_un& address, socklen_t length, bool& same_user) {
  UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0) return false;
  same_user = is_same_user(socket);
  return true;
}

}  // namespace

HostLeader::HostLeader(const World& world, const HostGreeting& greeting, HostArrival own, TimePoint deadline,
                       int interrupt)
    : world_(world), greeting_(greeting), deadline_(deadline), interrupt_(interrupt) {
  size_t size = static_cast<size_t>(world.local_size);
  met_.group.bells.resize(size);
  met_.group.sockets.resize(size);
  met_.pids.resize(size);
  met_.arrived.resize(size);
  welcome_.accepted = 1;
  note(0, world.rank, ::getpid(), std::move(own));
}

Result<HostMeeting> HostLeader::meet(UniqueFd memory) {
  met_.group.memory = std::move(memory);
  auto bell = create_bell();
  if (!bell.ok()) return bell.status();
  met_.group.bells[0] = std::move(*bell);
  missing_ = world_.local_size - 1;
  if (missing_ > 0) {
    if (Status status = listen(); !status.ok()) return status;
  }
  while (missing_ > 0) {
    if (Status status = receive_all(); !status.ok()) return refuse_all(status);
  }
  if (Status status = agree(); !status.ok()) return refuse_all(status);
  return welcome_all();
}

// ---- listening ----

Status HostLeader::listen() {
  for (size_t index = 0; index < greeting_.names(); index++) {
    auto taken = take_name(index);
    if (!taken.ok()) return taken.status();
    if (*taken) return {};
  }
  return {Code::unknown,
          "another user has taken the socket names for the ranks of this host; give all ranks the same 64 "
          "hexadecimal digits in _HOROVOD_SECRET_KEY, so that no other user can predict the names"};
}

Result<bool> HostLeader::take_name(size_t index) {
  listener_ = UniqueFd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener_) return system_error("cannot create a Unix socket", "");
  name_ = greeting_.name(index);
  socklen_t length = 0;
  sockaddr_un address = abstract_address(name_, length);
  if (::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), length) == 0) {
    if (::listen(listener_.get(), kMostRanksOfHost) != 0) return system_error("cannot listen on a Unix socket", "");
    return true;
  }
  int error = errno;
  bool same_user = false;
  if (error == EADDRINUSE && (!has_a_listener(address, length, same_user) || !same_user)) return false;
  return system_error("cannot open the socket for the ranks of this host",
                      "(is another local rank 0 of the same job running?)", error);
}

// ---- connections ----

// Waits until a connection has data, and reads from all connections that have.
Status HostLeader::receive_all() {
  std::vector<pollfd> wanted{{.fd = interrupt_, .events = POLLIN, .revents = 0},
                             {.fd = listener_.get(), .events = POLLIN, .revents = 0}};
  for (const Caller& caller : callers_) wanted.push_back({.fd = caller.socket.get(), .events = POLLIN, .revents = 0});
  if (::poll(wanted.data(), wanted.size(), milliseconds_until(deadline_)) < 0 && errno != EINTR) {
    return system_error("cannot wait for the ranks of this host", "");
  }
  if (wanted[0].revents != 0 || Clock::now() >= deadline_) return why_not();
  size_t index = 2;
  for (auto caller = callers_.begin(); caller != callers_.end(); index++) {
    auto next = std::next(caller);
    if (wanted[index].revents != 0) {
      if (Status status = hear(caller); !status.ok()) return status;
    }
    caller = next;
  }
  return wanted[1].revents != 0 ? accept_caller() : Status();
}

Status HostLeader::accept_caller() {
  UniqueFd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket) {
    bool is_full = errno == EMFILE || errno == ENFILE;
    if (is_full && callers_.empty()) return system_error("cannot accept a rank of this host", "");
    if (is_full) callers_.pop_front();
    return {};
  }
  Caller& caller = callers_.emplace_back();
  caller.socket = std::move(socket);
  if (!is_same_user(caller.socket)) {
    send_away(std::prev(callers_.end()));
  } else if (callers_.size() > kMostCallers) {
    callers_.pop_front();
  }
  return {};
}

// Some connections close before they send anything: members that were interrupted, or that check for a leader.
Status HostLeader::hear(std::list<Caller>::iterator caller) {
  if (caller->is_challenged) return hear_hello(caller);
  std::vector<UniqueFd> fds;
  Bytes said = receive_up_to(caller->socket, sizeof(HostOpening), fds);
  if (said.empty()) return callers_.erase(caller), Status();
  if (said.size() == sizeof(HostOpening)) std::memcpy(&caller->opening, said.data(), said.size());
  auto nonce = random_nonce();
  if (!nonce.ok()) return nonce.status();
  caller->nonce = *nonce;
  caller->is_challenged = said.size() == sizeof(HostOpening) && caller->opening.magic == kHostGreeting;
  HostChallenge challenge = greeting_.challenge(name_, caller->opening, *nonce);
  if (!caller->is_challenged || !send_message(caller->socket, bytes_of_message(challenge), {})) send_away(caller);
  return {};
}

Status HostLeader::hear_hello(std::list<Caller>::iterator caller) {
  std::vector<UniqueFd> fds;
  Bytes said = receive_up_to(caller->socket, kLongestHello, fds);
  if (said.empty()) return callers_.erase(caller), Status();
  auto hello = decode_hello(greeting_.confirmed(name_, caller->opening, caller->nonce, said));
  if (!hello || fds.size() != 1) return send_away(caller), Status();
  UniqueFd socket = std::move(caller->socket);
  callers_.erase(caller);
  if (Status status = check(*hello); !status.ok()) {
    refuse(socket, status);
    return status;
  }
  make_blocking(socket);
  size_t local = static_cast<size_t>(hello->local_rank);
  met_.group.sockets[local] = std::move(socket);
  met_.group.bells[local] = std::move(fds[0]);
  note(local, hello->rank, hello->pid, std::move(hello->arrival));
  missing_--;
  return {};
}

void HostLeader::send_away(std::list<Caller>::iterator caller) {
  ucred peer{};
  socklen_t length = sizeof peer;
  (void)::getsockopt(caller->socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length);
  if (++strangers_ <= kMostReported) {
    log_warning("rejected a connection to the ranks of this host from a process that {}: pid {}, user {}",
                peer.uid == ::getuid() ? "does not belong to the job" : "belongs to another user", peer.pid, peer.uid);
  }
  callers_.erase(caller);
}

Status HostLeader::check(const HostHello& hello) const {
  auto bad = [](std::string text) { return Status(Code::invalid_argument, std::move(text)); };
  if (hello.size != world_.size || hello.rank < 0 || hello.rank >= world_.size) {
    return bad(
        fmt::format("pid {} says it is rank {} of {}, but rank {} (pid {}) is in a world of {}; check HOROVOD_RANK and "
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

// ---- after all have connected ----

// Settles what all ranks of the host must have in common.
Status HostLeader::agree() {
  std::vector<KnobsOf> knobs;
  std::vector<CoreMask> masks;
  for (size_t local = 0; local < met_.arrived.size(); local++) {
    knobs.push_back({.ranks = {welcome_.ranks[local]}, .knobs = met_.arrived[local].knobs});
    masks.push_back(met_.arrived[local].cores);
  }
  met_.crowded = must_share_cores(masks);
  welcome_.crowded = met_.crowded ? 1 : 0;
  return compare_knobs(knobs, Scope::on_host);
}

void HostLeader::note(size_t local, int32_t rank, int32_t pid, HostArrival arrival) {
  welcome_.ranks[local] = rank;
  welcome_.pids[local] = met_.pids[local] = pid;
  met_.arrived[local] = std::move(arrival);
}

// The error after a time-out or an interrupt.
Status HostLeader::why_not() const {
  if (is_readable(interrupt_)) return was_interrupted();
  std::vector<size_t> missing;
  for (size_t local = 1; local < met_.pids.size(); local++) {
    if (met_.pids[local] == 0) missing.push_back(local);
  }
  bool is_whole_world = world_.local_size == world_.size;
  return {Code::unknown,
          fmt::format("the world did not form in time: of {} ranks on {}, these {}never connected: {} "
                      "(HOROVOD_START_TIMEOUT)",
                      world_.local_size, world_.host, is_whole_world ? "" : "local ranks ", joined(missing, ", "))};
}

Status HostLeader::refuse_all(Status status) {
  for (const UniqueFd& socket : met_.group.sockets) {
    if (socket) refuse(socket, status);
  }
  return status;
}

Result<HostMeeting> HostLeader::welcome_all() {
  fill_in(met_.group, world_, welcome_);
  std::vector<int> fds{met_.group.memory.get()};
  for (const UniqueFd& bell : met_.group.bells) fds.push_back(bell.get());
  for (size_t local = 1; local < met_.group.sockets.size(); local++) {
    if (!send_message(met_.group.sockets[local], bytes_of_message(welcome_), fds)) {
      size_t rank = static_cast<size_t>(met_.group.world_ranks[local]);
      const RankPlace& place = met_.group.places[rank];
      return refuse_all(
          {Code::peer_lost,
           fmt::format("{} is gone before the world formed", met_.group.rank_names[rank]),
           {.kind = OriginKind::lost, .rank = static_cast<int32_t>(rank), .host = place.host, .pid = place.pid}});
    }
  }
  return std::move(met_);
}

}  // namespace hvd
