// The messages between the ranks of a host when they meet, after they have authenticated each other (host_greeting.h).
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
  int32_t code = 0;  // of the error
  char refusal[2048] = {};
  int32_t lost_rank = -1;  // a rank of the world whose end is the cause of the error; its process was lost_pid
  int32_t lost_pid = 0;
  int32_t ranks[kMostRanksOfHost] = {};  // of the world, by local rank
  int32_t pids[kMostRanksOfHost] = {};
};

// Fills in the data of all ranks of the host, from the leader's list.
void fill_in(HostGroup& group, const World& world, const HostWelcome& welcome);

// Messages of a fixed length are sent as they are in memory: both sides run the same library on the same machine.
template <class Message>
ByteView bytes_of_message(const Message& message) {
  return std::as_bytes(std::span(&message, 1));
}

void make_blocking(const UniqueFd& socket);
bool is_same_user(const UniqueFd& socket);  // the peer process, as reported by the kernel

}  // namespace hvd
