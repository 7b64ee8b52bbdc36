// Ordered byte streams between this rank and ranks of other hosts, for bulk data. There are no tags and no message
// boundaries: the bytes that one side sends to a peer, in the order of its send() calls, fill what the other side
// receives from it, in the order of its receive() calls. All ranks execute the same plans in the same order, so both
// sides know every size. A pair may use several connections (striped_stream.h says which byte takes which).
//
// Nothing here blocks. progress() moves what can be moved; the Waiter calls it while a rank waits. Nobody is woken by
// bytes unless it sleeps for them: arm() before a sleep, disarm() after. The end of a peer wakes always.
//
// How a stream ends tells why. A process that dies resets its connections (set_linger in mesh.cc), and
// that is a loss at once. One that leaves in order says so first (say_goodbye) and closes; that is a loss only for who
// still wants bytes of it. A host that cannot be reached acknowledges nothing: find_unreachable() looks for that. It is
// no sign of it that a peer does not read, because it may be busy with other things for as long as it likes.
//
// Thread rule: the thread that drives, except check_peers() and list_descriptors(), which any thread may call, and
// find_unreachable(), which has one caller of its own (engine/watch.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/fd.h"
#include "base/status.h"
#include "base/wire.h"
#include "net/dialer.h"
#include "net/stream.h"
#include "transport/striped_stream.h"

namespace hvd {

struct MeshSettings {
  StripeShape stripes;
  bool all_stripes = false;  // always use all connections of a pair instead of as many as are found to be worth it
};

class Mesh {
 public:
  // Done once the stream of the pair has come this far.
  struct Ticket {
    int32_t peer = -1;
    bool outgoing = false;
    uint64_t position = 0;
  };
  // `on_lost` is told once of every peer whose stream ended, by the thread that notices.
  static Result<std::unique_ptr<Mesh>> create(std::function<void(int32_t peer, const Status&)> on_lost,
                                              MeshSettings settings = {});

  void add(int32_t peer, std::unique_ptr<Stream> stream);                // peer: a rank of the world
  void add(int32_t peer, std::vector<std::unique_ptr<Stream>> stripes);  // in the same order on both sides
  // Connections to peers that were not added are opened when they are first used, by both sides.
  void set_dialer(std::unique_ptr<Dialer> dialer) { dialer_ = std::move(dialer); }
  bool has(int32_t peer) const { return peers_.contains(peer); }

  // The memory stays the mesh's until the ticket is done.
  Ticket send(int32_t peer, ByteView bytes);
  Ticket receive(int32_t peer, std::span<std::byte> bytes);
  bool is_done(const Ticket& ticket) const;

  bool progress();                                   // true: something moved
  bool is_busy() const { return !active_.empty(); }  // something is queued
  int descriptor() const { return epoll_.get(); }    // readable when a peer ended or, armed, when bytes can move

  bool arm();  // false: do not sleep, there is something to do
  void disarm();
  void check_peers();  // after a wake-up: takes the ends of peers, so that they wake no thread again
  // Ends the peers to which bytes are under way and whose hosts have acknowledged none for `limit`.
  void find_unreachable(TimePoint now, Duration limit);
  // What the kernel counted for each peer that has a connection. Any thread.
  struct Traffic {
    int32_t peer = -1;
    uint64_t sent = 0, received = 0;  // bytes
    uint64_t retransmits = 0;         // segments
    uint64_t round_trip = 0;          // microseconds, of the slowest connection
    uint64_t connections = 0;
  };
  std::vector<Traffic> traffic() const;
  void say_goodbye();  // from now on the end of our streams is no failure
  void list_descriptors(std::vector<int>& into) const;

 private:
  struct Peer;
  struct Connection {  // one stripe
    Peer* peer = nullptr;
    std::unique_ptr<Stream> stream;
    bool armed = false;
    TimePoint answered_at{};  // by its host, as far as find_unreachable() knows
  };
  struct Peer {
    Peer(int32_t peer, const MeshSettings& settings)
        : rank(peer),
          choice(settings.all_stripes),
          out(0, settings.stripes, &choice),
          in(0, settings.stripes, nullptr) {}
    void set_stripes(size_t count);
    int32_t rank;
    std::vector<Connection> connections;
    WidthChoice choice;  // of `out`
    StripedStream<ByteView> out;
    StripedStream<std::span<std::byte>> in;
    bool active = false;             // in active_
    bool lost = false;               // nothing moves any more
    std::atomic<bool> told = false;  // on_lost_ has been called
    bool is_idle() const { return out.is_empty() && in.is_empty(); }
  };
  Mesh(UniqueFd epoll, std::function<void(int32_t, const Status&)> on_lost, MeshSettings settings);
  Peer& peer_of(int32_t rank);
  Peer& add_peer(int32_t rank);
  void connect(Peer& peer, std::vector<std::unique_ptr<Stream>> stripes);
  bool move_dialer();
  void activate(Peer& peer);
  bool move(Peer& peer);
  bool move_out(Peer& peer, size_t stripe);
  bool move_in(Peer& peer, size_t stripe);
  static void note_progress(Peer& peer);  // of what is sent
  bool arm(Peer& peer);
  void lose(Peer& peer, const Status& status);
  void tell(Peer& peer, const Status& status);

  UniqueFd epoll_;
  std::function<void(int32_t, const Status&)> on_lost_;
  MeshSettings settings_;
  std::unique_ptr<Dialer> dialer_;
  bool dialer_armed_ = false;
  mutable std::mutex list_mutex_;  // peers_ and their connections are changed, and listed by others, with it
  std::map<int32_t, std::unique_ptr<Peer>> peers_;
  std::vector<Peer*> active_;       // those with something queued
  std::vector<Connection*> armed_;  // those that wake for bytes
  TimePoint looked_at_{};           // by find_unreachable()
};

}  // namespace hvd
