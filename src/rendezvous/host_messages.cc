#include "rendezvous/host_messages.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/socket.h>
#include <unistd.h>

namespace hvd {

Bytes encode_hello(const World& world, const HostArrival& own) {
  Bytes bytes;
  Encoder out(bytes);
  for (int32_t number : {world.rank, world.size, world.local_rank, world.local_size, ::getpid()}) {
    out.signed_varint(number);
  }
  out.varint(own.port);
  encode(out, own.knobs);
  out.varint(own.cores.size());
  for (uint64_t word : own.cores) out.varint(word);
  return bytes;
}

std::optional<HostHello> decode_hello(ByteView bytes) {
  Decoder in(bytes);
  HostHello hello;
  for (int32_t* number : {&hello.rank, &hello.size, &hello.local_rank, &hello.local_size, &hello.pid}) {
    *number = static_cast<int32_t>(in.signed_varint());
  }
  hello.arrival.port = static_cast<uint16_t>(in.varint());
  hello.arrival.knobs = decode_shared_knobs(in);
  for (size_t words = in.count(); words > 0; words--) hello.arrival.cores.push_back(in.varint());
  if (!in.ok() || !in.at_end()) return std::nullopt;
  return hello;
}

void fill_in(HostGroup& group, const World& world, const HostWelcome& welcome) {
  group.rank = world.local_rank;
  group.size = world.local_size;
  group.rank_names.resize(static_cast<size_t>(world.size));
  group.places.resize(static_cast<size_t>(world.size));
  for (size_t local = 0; local < static_cast<size_t>(world.local_size); local++) {
    int32_t rank = welcome.ranks[local];
    group.world_ranks.push_back(rank);
    group.rank_names[static_cast<size_t>(rank)] =
        fmt::format("rank {} ({}, pid {})", rank, world.host, welcome.pids[local]);
    group.places[static_cast<size_t>(rank)] = {world.host, welcome.pids[local]};
  }
}

void make_blocking(const UniqueFd& socket) {
  int flags = ::fcntl(socket.get(), F_GETFL);
  (void)::fcntl(socket.get(), F_SETFL, flags & ~O_NONBLOCK);
}

bool is_same_user(const UniqueFd& socket) {
  ucred peer{};
  socklen_t length = sizeof peer;
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) return false;
  return peer.uid == ::getuid();
}

}  // namespace hvd
