// The streams of this rank to ranks of other hosts, for algorithms between hosts. Ranks are those of the world.
// The memory of a send or receive must stay until its ticket is done. Thread rule: the thread that drives.
#pragma once

#include "transport/transport.h"

namespace hvd {

class Links {
 public:
  explicit Links(Transport& transport) : transport_(transport) {}

  void describe(const char* what) { what_ = what; }
  Mesh::Ticket send(int32_t rank, ByteView bytes) { return mesh().send(rank, bytes); }
  Mesh::Ticket receive(int32_t rank, std::span<std::byte> bytes) { return mesh().receive(rank, bytes); }
  bool is_done(const Mesh::Ticket& ticket) const { return transport_.mesh()->is_done(ticket); }
  // Moves as many bytes as possible. Does nothing after a failure: queued memory may have been freed.
  void progress() {
    if (!transport_.failed()) mesh().progress();
  }
  Status wait(const Mesh::Ticket& ticket) {
    auto ready = [&] {
      if (is_done(ticket)) return true;
      progress();
      return is_done(ticket);
    };
    return transport_.waiter().wait_until(ready, kNever, what_, ticket.peer);
  }

 private:
  Mesh& mesh() { return *transport_.mesh(); }

  Transport& transport_;
  const char* what_ = "";
};

}  // namespace hvd
