// Ordered byte streams between this rank and ranks of other hosts, for bulk data. There are no tags and no message
// boundaries: the bytes that one side sends to a peer, in the order of its send() calls, fill what the other side
// receives from it, in the order of its receive() calls. All ranks execute the same plans in the same order, so both
// sides know every size. A pair may use several connections (striped_stream.h says which byte takes which).
//
// Nothing here blocks. progress() moves as many bytes as possible; the Waiter calls it while a rank waits. Bytes wake a
// thread only between arm() and disarm(), which enclose a sleep. A closed connection always wakes.
//
// The way a stream ends shows why. A process that dies resets its connections (set_linger in mesh.cc), which is a loss
// at once. A process that shuts down says so first (say_goodbye) and closes; that is a loss only for ranks that still
// expect bytes from it. A host that cannot be reached acknowledges nothing; find_unreachable() detects that. A peer
// that does not read may be busy, for any length of time, so that does not indicate a loss.
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
  bool all_stripes = false;  // always use all connections of a pair instead of the measured best number
};

class Mesh {
 public:
  // Done once the stream of the pair has reached `position`.
  struct Ticket {
    int32_t peer = -1;
    bool outgoing = false;
    uint64_t position = 0;
  };
  // `on_lost` is called once per peer whose stream ended, by the thread that detects it.
  static Result<std::unique_ptr<Mesh>> create(std::function<void(int32_t peer, const Status&)> on_lost,
                                              MeshSettings settings = {});

  void add(int32_t peer, std::unique_ptr<Stream> stream);                // peer: a rank of the world
  void add(int32_t peer, std::vector<std::unique_ptr<Stream>> stripes);  // in the same order on both sides
  // Connections to other peers are opened on first use, by both sides.
  void set_dialer(std::unique_ptr<Dialer> dialer) { dialer_ = std::move(dialer); }
  bool has(int32_t peer) const { return peers_.contains(peer); }

  // The mesh uses the memory until the ticket is done.
  Ticket send(int32_t peer, ByteView bytes);
  Ticket receive(int32_t peer, std::span<std::byte> bytes);
  bool is_done(const Ticket& ticket) const;

  bool progress();                                   // true: something moved
  bool is_busy() const { return !active_.empty(); }  // something is queued
  // readable when a peer's connection ended or, if armed, when bytes can be moved
  int descriptor() const { return epoll_.get(); }

  bool arm();  // false: do not sleep, there is work to do
  void disarm();
  void check_peers();  // after a wake-up: handles closed connections, so that they wake no thread again
  // Ends connections with unacknowledged bytes whose hosts have acknowledged none for `limit`.
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
  void say_goodbye();  // from now on peers do not treat the end of our streams as a failure
  void list_descriptors(std::vector<int>& into) const;

 private:
  struct Peer;
  struct Connection {  // one stripe
    Peer* peer = nullptr;
    std::unique_ptr<Stream> stream;
    bool armed = false;
    TimePoint answered_at{};  // the host's last answer, as far as find_unreachable() knows
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
    bool lost = false;               // its stream has ended
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
  static void note_progress(Peer& peer);  // of sent bytes
  bool arm(Peer& peer);
  void lose(Peer& peer, const Status& status);
  void tell(Peer& peer, const Status& status);

  UniqueFd epoll_;
  std::function<void(int32_t, const Status&)> on_lost_;
  MeshSettings settings_;
  std::unique_ptr<Dialer> dialer_;
  bool dialer_armed_ = false;
  mutable std::mutex list_mutex_;  // held to change peers_ and their connections, and to list them from other threads
  std::map<int32_t, std::unique_ptr<Peer>> peers_;
  std::vector<Peer*> active_;       // peers with queued bytes
  std::vector<Connection*> armed_;  // connections that wake a sleeper for bytes
  TimePoint looked_at_{};           // last call of find_unreachable()
};

}  // namespace hvd
