// Moves bytes between the ranks of one host through shared memory: small control messages up to the root and down from
// it, and bulk data through Channels. Also the place where a rank waits: spin, yield, and only then sleep.
// Thread rule: one caller at a time (the thread that drives), except wake(), wake_later(), wake_driver(), abort(),
// failure() and the sleep of the engine thread, which may overlap with a driving thread, and what is marked as the
// watch's, which has one caller of its own.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "base/wire.h"
#include "model/host_group.h"
#include "transport/channel.h"
#include "transport/line_ring.h"
#include "transport/mesh.h"
#include "transport/shared_memory.h"
#include "transport/sleeper.h"
#include "transport/yield_choice.h"

namespace hvd {

struct TransportSettings {
  ChannelShape channel;
  // More ranks than cores: every wait for another rank is a change of threads. Decides how tensors are cut, so it is
  // the same on all ranks of the host. How a rank waits (`spin`, `yield`) is its own choice and decides nothing else.
  bool crowded = false;
  Duration spin = std::chrono::microseconds(20);
  Duration yield = std::chrono::milliseconds(1);
  Duration stall_warning = std::chrono::seconds(60);  // a wait inside a collective this long is logged; 0: never
  Duration collective_timeout{};                      // and this long fails the world; 0: never
};

class Transport {
 public:
  static Result<std::unique_ptr<Transport>> create(HostGroup group, TransportSettings settings);
  ~Transport();

  int32_t rank() const { return group_.rank; }
  int32_t size() const { return group_.size; }
  bool is_root() const { return group_.rank == 0; }
  // Ranks here are those of this host; in reports they are those of the world.
  int32_t world_rank(int32_t rank) const { return group_.world_ranks[static_cast<size_t>(rank)]; }
  const std::string& rank_name(int32_t world_rank) const { return group_.rank_names[static_cast<size_t>(world_rank)]; }
  Origin origin_of(OriginKind kind, int32_t world_rank, std::string text = {}) const;
  Origin placed(Origin origin) const;  // with the host and pid of its rank

  bool is_crowded() const { return settings_.crowded; }

  // ---- control messages: framed, in order, of any length; what does not fit yet is kept and sent later ----
  void send(ByteView message);                       // the root: to every other rank; the others: to the root
  bool receive_up(int32_t from, ByteView& message);  // root; the view is valid until the next call
  bool receive_down(ByteView& message);
  bool has_incoming() const;  // cheap: is there anything to receive?
  bool flush();               // sends what was kept; false: some is still waiting for room
  bool has_unsent() const { return !unsent_.empty(); }
  bool is_unread() const;  // not the root: the root has not taken all we sent

  // ---- bulk data ----
  // The channel of a process set; every member opens it at the same place in the order of plans.
  Result<Channel*> open_channel(int32_t process_set, const std::vector<int32_t>& ranks);
  void close_channel(int32_t process_set);
  Channel* channel(int32_t process_set);
  // The streams to ranks of other hosts; a rank that waits moves their bytes. Null: there are none.
  Status attach(std::unique_ptr<Mesh> mesh);
  Mesh* mesh() const { return mesh_.get(); }
  Status wait(const Mesh::Ticket& ticket, const char* what) {
    return wait_until([&] { return mesh_->is_done(ticket); }, kNever, what, ticket.peer);
  }

  // ---- beyond this host ----
  // Wakes who sleeps when the descriptor becomes readable. Who drives must read it then; while somebody drives it wakes
  // nobody, unless the driver itself sleeps.
  Status watch(int descriptor);
  void unwatch(int descriptor);
  // Called by a driver inside a wait, before it sleeps and when it is due, with the time; returns when it wants to be
  // called again. Keeps the control links going while a collective takes long. Must not wait.
  void set_chores(std::function<TimePoint(TimePoint)> chores);
  // A process that is stopped keeps its sockets. In worlds that span hosts, and in elastic ones, every rank beats about
  // once a second and looks at the others as often: not ok (peer_lost) names one of this host that has not for `limit`.
  // The watch's (engine/watch.h).
  void beat();
  void stop_beating();  // this rank leaves and is not silent
  Status find_silent(TimePoint now, Duration limit);
  void check_peers();  // looks at the sockets; sets the failure if a peer is gone. Any thread

  // ---- waiting ----
  void enter();  // this thread drives from now on
  // Nobody does. `pause`: this thread is likely to be back soon. True: a message has arrived that nobody will ring for,
  // so somebody here must drive again.
  bool leave(bool pause = false);
  // Blocks until ready(), a failure, or `until`; ok also when the time has come. `what` and `for_rank`, of the world,
  // name the wait for reports.
  template <class Ready>
  Status wait_until(Ready&& ready, TimePoint until, const char* what = nullptr, int32_t for_rank = -1) {
    int looks = mesh_is_busy() ? 1 : quick_spins_;  // bytes of the mesh do not move while we only look
    for (int i = 0; i < looks; i++) {
      if (ready()) return {};
      relax();
    }
    return wait_slowly(std::ref(ready), until, what, for_rank);
  }
  void sleep(TimePoint until);  // engine thread, while it does not drive
  void wake();                  // ends a sleep or blocked wait of this process
  // The same, but only after that time; one that is set already stays. It may come although it is not needed any more.
  void wake_later(Duration after);
  void wake_driver();  // of this process, if it sleeps inside a wait
  void answer_bell();  // after sleep(): takes the event, looks at the peers
  // The same for a thread that is not the driver. False: the driver itself sleeps and the event is left to wake it.
  bool answer_bell_for_driver();

  // Fails every wait of every rank from now on. The first failure wins. One without an origin is this rank's own.
  void abort(const Status& status);
  Status failure() const;
  bool failed() const { return control_->failed.load(std::memory_order_relaxed) != 0; }
  // This rank is being shut down: a wait inside a collective that lasts until then fails the world. Any thread.
  // Once; `origin`: why it leaves.
  void leave_by(TimePoint time, Origin origin);
  // From now on a peer that leaves is no failure: the world has been shut down.
  void expect_departures() { departures_expected_ = true; }
  bool expects_departures() const { return departures_expected_; }
  void say_goodbye();  // tell the peers that the end of this process's sockets is no failure

  static void relax() {  // between two looks at memory
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
  }

  // Descriptors that a forked child must close.
  std::vector<int> descriptors() const;

 private:
  friend class Channel;
  Transport(HostGroup group, TransportSettings settings, Mapping control, Sleeper sleeper);

  // Type-erased predicate without allocation.
  class Predicate {
   public:
    template <class Ready>
    Predicate(std::reference_wrapper<Ready> ready)
        : object_(&ready.get()), call_([](void* object) -> bool { return (*static_cast<Ready*>(object))(); }) {}
    bool operator()() const { return call_(object_); }

   private:
    void* object_;
    bool (*call_)(void*);
  };

  Status wait_slowly(Predicate ready, TimePoint until, const char* what, int32_t for_rank);
  Status block(Predicate ready, TimePoint until, TimePoint since, const char* what, int32_t for_rank);
  // Wakes the peers that have not seen what we sent or posted. `patient`: not those that are only paused. `leaving`: we
  // shall not look again, so one that drives is asked to.
  enum class Ringing { patient, now, leaving };
  void ring_owed(Ringing how);
  void ring_reader(int32_t peer, Ringing how);
  void ring_blocked();
  void ring_rank(int32_t rank);
  RankBlock& block_of(int32_t rank) const { return control_->ranks[rank]; }
  uint64_t slowest_reader() const;
  // After a failure nothing moves: the memory of what is still queued may be gone.
  void do_chores(TimePoint now) {
    if (now >= chores_at_) chores_at_ = chores_(now);
  }
  bool mesh_is_busy() const { return mesh_ != nullptr && mesh_->is_busy() && !failed(); }
  bool move_mesh() { return mesh_is_busy() && mesh_->progress(); }

  HostGroup group_;
  TransportSettings settings_;
  int quick_spins_;  // looks before the clock is read for the first time
  Mapping control_mapping_;
  ControlBlock* control_;
  Sleeper sleeper_;
  YieldChoice yielding_;
  std::atomic<uint32_t> entries_{0};    // calls of enter()
  std::atomic<bool> naps_{false};       // see sleep()
  std::atomic<bool> alarm_set_{false};  // and nobody has been woken since
  std::atomic<TimePoint> leave_by_{kNever};
  Origin departure_;  // set before leave_by_
  std::unique_ptr<Mesh> mesh_;
  std::function<TimePoint(TimePoint)> chores_;
  TimePoint chores_at_ = kNever;  // when they are due
  struct Pulse {
    uint64_t beats = 0;
    TimePoint changed{};
  };
  std::vector<Pulse> pulses_;  // by rank; the watch's
  TimePoint pulses_at_{};      // looked at; long ago: we were away ourselves and judge nobody
  std::map<int32_t, std::unique_ptr<Channel>> channels_;
  std::map<size_t, size_t> used_ranges_;  // staging ranges of the memory object: offset -> end
  uint64_t channels_opened_ = 0;          // the same on every rank: channels are opened in the order of plans

  std::map<int32_t, size_t> outside_;  // offsets of the channels this rank is not in

  struct UpReader {
    RingReader frame;
    uint64_t read = 0;
  };
  Bytes unsent_;                // frames on their way into the ring
  size_t unsent_sent_ = 0;      // how much of them is in it
  uint64_t written_ = 0;        // lines ever put into our ring
  uint64_t slowest_known_ = 0;  // every reader of our ring has come at least this far
  RingReader down_frame_;
  uint64_t down_read_ = 0;
  std::vector<UpReader> up_readers_;          // root, by rank
  bool owed_up_ = false, owed_down_ = false;  // peers may need a bell for a message of ours
  bool owed_data_ = false;                    // or, if they are blocked, for what we posted in a channel
  std::atomic<bool> departures_expected_{false};
  std::mutex peers_mutex_;      // check_peers() may be called by the engine thread and a driving thread
  std::vector<bool> departed_;  // said goodbye; guarded by peers_mutex_
  std::vector<bool> closed_;    // their socket has ended; guarded by peers_mutex_
};

}  // namespace hvd
