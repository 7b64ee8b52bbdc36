// What the ranks of a host say to each other when they meet, once they have recognised each other (host_greeting.h).
// Thread rule: plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "base/wire.h"
#include "model/host_group.h"
#include "model/world.h"
#include "rendezvous/host_greeting.h"
#include "rendezvous/host_meeting.h"

namespace hvd {

inline constexpr int32_t kMostRanksOfHost = 128;
inline constexpr size_t kLongestHello = 64 << 10;

struct HostHello {
  int32_t rank = 0, size = 0, local_rank = 0, local_size = 0, pid = 0;
  HostArrival arrival;
};

Bytes encode_hello(const World& world, const HostArrival& own);
std::optional<HostHello> decode_hello(ByteView bytes);

struct HostWelcome {
  uint32_t magic = kHostGreeting;
  uint32_t accepted = 0;
  uint32_t crowded = 0;
  int32_t code = 0;  // of the refusal
  char refusal[2048] = {};
  int32_t lost_rank = -1;  // of the world: the refusal is for its end, and lost_pid was its process
  int32_t lost_pid = 0;
  int32_t ranks[kMostRanksOfHost] = {};  // of the world, by local rank
  int32_t pids[kMostRanksOfHost] = {};
};

// Everybody's place in the group, from the leader's list.
void fill_in(HostGroup& group, const World& world, const HostWelcome& welcome);

// Messages of a fixed length are sent as they are in memory: both sides run the same library on the same machine.
template <class Message>
ByteView bytes_of_message(const Message& message) {
  return std::as_bytes(std::span(&message, 1));
}

void make_blocking(const UniqueFd& socket);
bool is_same_user(const UniqueFd& socket);  // the process at the other end; the kernel vouches for it

}  // namespace hvd
