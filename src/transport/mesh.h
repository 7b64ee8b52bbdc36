// Ordered byte streams between this rank and ranks of other hosts, for bulk data. There are no tags and no message
// boundaries: the bytes that one side sends to a peer, in the order of its send() calls, fill what the other side
// receives from it, in the order of its receive() calls. All ranks execute the same plans in the same order, so both
// sides know every size.
// Nothing here blocks. progress() moves what can be moved; Transport calls it while a rank waits.
// Thread rule: the thread that drives.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "base/fd.h"
#include "base/status.h"
#include "base/wire.h"
#include "net/stream.h"

namespace hvd {

class Mesh {
 public:
  // Done once the stream of the pair has come this far.
  struct Ticket {
    int32_t peer = -1;
    bool outgoing = false;
    uint64_t position = 0;
  };

  // `on_lost` is told once of every peer whose stream ended.
  static Result<std::unique_ptr<Mesh>> create(std::function<void(int32_t peer, const Status&)> on_lost);

  void add(int32_t peer, std::unique_ptr<Stream> stream);  // peer: a rank of the world

  // The memory stays the mesh's until the ticket is done.
  Ticket send(int32_t peer, ByteView bytes);
  Ticket receive(int32_t peer, std::span<std::byte> bytes);
  bool is_done(const Ticket& ticket) const;

  bool progress();                                   // true: something moved
  bool is_busy() const { return !active_.empty(); }  // something is queued
  int descriptor() const { return epoll_.get(); }    // readable when progress() has something to do

 private:
  struct Peer {
    int32_t rank = -1;
    std::unique_ptr<Stream> stream;
    std::deque<ByteView> out;
    std::deque<std::span<std::byte>> in;
    uint64_t out_queued = 0, out_done = 0;
    uint64_t in_queued = 0, in_done = 0;
    uint32_t watched = 0;  // epoll events
    bool active = false;   // in active_
    bool lost = false;
  };
  Mesh(UniqueFd epoll, std::function<void(int32_t, const Status&)> on_lost);
  Peer& peer_of(int32_t rank) { return *peers_.at(rank); }
  void activate(Peer& peer);
  bool move_out(Peer& peer);
  bool move_in(Peer& peer);
  void watch(Peer& peer);
  void lose(Peer& peer, const Status& status);

  UniqueFd epoll_;
  std::function<void(int32_t, const Status&)> on_lost_;
  std::map<int32_t, std::unique_ptr<Peer>> peers_;
  std::vector<Peer*> active_;  // those with something queued
};

}  // namespace hvd
