#include "rendezvous/host_meeting.h"

#include <fmt/core.h>
#include <sys/socket.h>

#include <algorithm>

#include "base/bell.h"
#include "base/log.h"
#include "rendezvous/host_greeting.h"
#include "rendezvous/host_leader.h"
#include "rendezvous/host_messages.h"
#include "rendezvous/parcel.h"

namespace hvd {
namespace {

constexpr Duration kPatienceForWelcome = std::chrono::seconds(2);  // the leader sends its error at its own deadline

// A rank that connects to the leader.
class Member {
 public:
  Member(const World& world, const HostGreeting& greeting, TimePoint deadline, int interrupt)
      : world_(world), greeting_(greeting), deadline_(deadline), interrupt_(interrupt) {}

  Result<HostMeeting> join(const HostArrival& own) {
    if (Status status = find_leader(); !status.ok()) return status;
    auto bell = create_bell();
    if (!bell.ok()) return bell.status();
    Bytes hello = greeting_.sign(name_, opening_, nonce_, encode_hello(world_, own));
    HostWelcome welcome;
    std::vector<UniqueFd> fds;
    int fd = bell->get();
    if (!send_message(socket_, hello, {&fd, 1}) || !hears(welcome, fds)) {
      if (is_readable(interrupt_)) return was_interrupted();
      return Status(Code::peer_lost, fmt::format("local rank 0 of {} went away before the world formed", world_.host));
    }
    if (welcome.accepted == 0) {
      welcome.refusal[sizeof welcome.refusal - 1] = 0;
      Code code = error_code_of(static_cast<uint64_t>(welcome.code));
      if (welcome.lost_rank < 0) return Status(code, welcome.refusal);
      return Status(
          code, welcome.refusal,
          {.kind = OriginKind::lost, .rank = welcome.lost_rank, .host = world_.host, .pid = welcome.lost_pid});
    }
    if (fds.size() != static_cast<size_t>(world_.local_size) + 1) {
      return Status(Code::unknown, "this process may not open enough files (ulimit -n) to meet the other ranks");
    }
    HostMeeting met;
    met.group.memory = std::move(fds[0]);
    for (size_t i = 1; i < fds.size(); i++) met.group.bells.push_back(std::move(fds[i]));
    met.group.sockets.push_back(std::move(socket_));
    met.crowded = welcome.crowded != 0;
    fill_in(met.group, world_, welcome);
    return met;
  }

 private:
  // The leader may not be listening yet, and nothing signals when it is; this polls, but only at start.
  Status find_leader() {
    Duration pause = std::chrono::microseconds(200);
    for (;;) {
      for (size_t index = 0; index < greeting_.names(); index++) {
        auto found = greet(index);
        if (!found.ok() || *found) return found.status();
      }
      if (is_readable(interrupt_)) return was_interrupted();
      if (Clock::now() + pause > deadline_) {
        return {Code::unknown,
                fmt::format("the world did not form in time: rank {} of {} on {} never reached {}rank 0 "
                            "(HOROVOD_START_TIMEOUT), or that rank has another key (_HOROVOD_SECRET_KEY)",
                            world_.rank, world_.size, world_.host, world_.local_size == world_.size ? "" : "local ")};
      }
      (void)wait_readable(UniqueFd(), Clock::now() + pause, interrupt_);
      pause = std::min<Duration>(pause * 2, std::chrono::milliseconds(10));
    }
  }

  // True: the leader listens under this name, and has proven that it is the leader.
  Result<bool> greet(size_t index) {
    socket_ = UniqueFd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!socket_) return system_error("cannot create a Unix socket", "");
    name_ = greeting_.name(index);
    socklen_t length = 0;
    sockaddr_un address = abstract_address(name_, length);
    if (::connect(socket_.get(), reinterpret_cast<sockaddr*>(&address), length) != 0) {
      if (errno == ECONNREFUSED || errno == EINTR || errno == EAGAIN) return false;
      return system_error("cannot connect to the ranks of this host", "");
    }
    if (!is_same_user(socket_)) return false;
    make_blocking(socket_);
    auto nonce = random_nonce();
    if (!nonce.ok()) return nonce.status();
    opening_.nonce = *nonce;
    HostChallenge challenge;
    std::vector<UniqueFd> fds;
    if (!send_message(socket_, bytes_of_message(opening_), {}) || !hears(challenge, fds)) return false;
    nonce_ = challenge.nonce;
    if (greeting_.is_leader(name_, opening_, challenge)) return true;
    if (!std::exchange(warned_, true)) {
      log_warning("the process that listens on the socket for the ranks of this host does not belong to the job");
    }
    return false;
  }

  template <class Message>
  bool hears(Message& message, std::vector<UniqueFd>& fds) {
    return wait_readable(socket_, deadline_ + kPatienceForWelcome, interrupt_) &&
           receive_message(socket_, std::as_writable_bytes(std::span(&message, 1)), fds) &&
           message.magic == kHostGreeting;
  }

  const World& world_;
  const HostGreeting& greeting_;
  TimePoint deadline_;
  int interrupt_;
  UniqueFd socket_;
  std::string name_;
  HostOpening opening_;
  Nonce nonce_{};  // of the leader
  bool warned_ = false;
};

}  // namespace

Result<HostMeeting> meet_on_host(const World& world, const Config& config, UniqueFd memory, HostArrival own,
                                 TimePoint deadline, int interrupt) {
  if (world.local_size > kMostRanksOfHost) {
    return Status(Code::invalid_argument, fmt::format("{} processes on one host are more than the {} supported",
                                                      world.local_size, kMostRanksOfHost));
  }
  auto greeting = HostGreeting::create(world, config);
  if (!greeting.ok()) return greeting.status();
  if (world.local_rank != 0) return Member(world, *greeting, deadline, interrupt).join(own);
  return HostLeader(world, *greeting, std::move(own), deadline, interrupt).meet(std::move(memory));
}

}  // namespace hvd
