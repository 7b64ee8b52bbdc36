// How the ranks of a host find and authenticate each other: the name of their socket, and the proofs that both sides
// give before any other message. Both are derived from the job's key, so a process without it can neither take the name
// before the leader does nor pass as a rank, even if it belongs to the same user and shares the network namespace
// (containers of a pod).
//
//   opening    member: a nonce
//   challenge  leader: a nonce, proof over "leader", the name and both nonces
//   hello      member: proof over "member", the name, both nonces and its data; its data, and its bell
// A proof is HMAC-SHA256. Neither side sends a descriptor before the other one has given its proof. Jobs without a key
// (ranks of one host that a scheduler started) use a fixed public one; then only the kernel's report of the user
// protects them. Thread rule: pure functions.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <string>
#include <string_view>

#include "base/status.h"
#include "base/wire.h"
#include "model/config.h"
#include "model/world.h"
#include "net/key.h"

namespace hvd {

inline constexpr uint32_t kHostGreeting = 0x48564734;  // "HVG4": also the version of all messages of the meeting

struct HostOpening {
  uint32_t magic = kHostGreeting;
  Nonce nonce{};
};

struct HostChallenge {
  uint32_t magic = kHostGreeting;
  Nonce nonce{};
  Proof proof{};
};

class HostGreeting {
 public:
  static Result<HostGreeting> create(const World& world, const Config& config);

  // Names for the socket, in the order in which the leader tries them. With a key there is one, which cannot be
  // guessed. Without a key, another user may have taken some of them.
  size_t names() const { return has_key_ ? 1 : 16; }
  std::string name(size_t index) const;
  bool has_key() const { return has_key_; }

  HostChallenge challenge(std::string_view name, const HostOpening& opening, const Nonce& nonce) const;
  bool is_leader(std::string_view name, const HostOpening& opening, const HostChallenge& challenge) const;
  Bytes sign(std::string_view name, const HostOpening& opening, const Nonce& nonce, ByteView said) const;
  // A member's data; empty: it has not proven that it belongs to the job. The view is into `hello`.
  ByteView confirmed(std::string_view name, const HostOpening& opening, const Nonce& nonce, ByteView hello) const;

 private:
  HostGreeting(Key key, bool has_key, std::string place)
      : key_(std::move(key)), has_key_(has_key), place_(std::move(place)) {}

  Key key_;
  bool has_key_;
  std::string place_;  // user, job, host and generation
};

sockaddr_un abstract_address(std::string_view name, socklen_t& length);

}  // namespace hvd
