// How a rank waits: spin, yield, and only then sleep. Publishes in shared memory whether this rank needs a bell
// (Activity), and before it sleeps wakes the peers that have not read this rank's messages. Thread rule: the thread
// that drives, except wake(), wake_later(), wake_driver(), leave_by(), and the sleep of the engine thread with its
// answers, which may overlap with a driving thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

#include "base/clock.h"
#include "base/relax.h"
#include "base/status.h"
#include "model/host_group.h"
#include "transport/bells.h"
#include "transport/control_view.h"
#include "transport/failure.h"
#include "transport/mesh.h"
#include "transport/message_rings.h"
#include "transport/peers.h"
#include "transport/sleeper.h"
#include "transport/yield_choice.h"

namespace hvd {

struct WaitSettings {
  // More ranks than cores: every wait for another rank is a context switch. It affects how tensors are divided, so it
  // is the same on all ranks of the host. How a rank waits (`spin`, `yield`) is its own choice and affects nothing
  // else.
  bool crowded = false;
  Duration spin = std::chrono::microseconds(20);
  Duration yield = std::chrono::milliseconds(1);
  Duration stall_warning = std::chrono::seconds(60);  // a longer wait inside a collective is logged; 0: never
  Duration collective_timeout{};                      // a longer one fails the world; 0: never
};

class Waiter {
 public:
  // Dependencies; all outlive the waiter.
  struct Parts {
    ControlView control;
    const HostGroup& group;
    Sleeper& sleeper;
    MessageRings& messages;
    Bells& bells;
    Failure& failure;
    Peers& peers;
  };
  Waiter(const Parts& parts, const WaitSettings& settings);

  const HostGroup& group() const { return group_; }
  bool is_crowded() const { return settings_.crowded; }
  Status attach(Mesh* mesh);  // a rank that waits moves its bytes

  // ---- driving ----
  void enter();  // this thread drives from now on
  // No thread drives. `pause`: this thread is likely to be back soon. True: a message has arrived for which no bell
  // will ring, so a thread of this rank must drive again.
  bool leave(bool pause = false);

  // Blocks until ready(), a failure, or `until`; returns ok in the last case, too. `what` and `for_rank`, of the world,
  // describe the wait in reports.
  template <class Ready>
  Status wait_until(Ready&& ready, TimePoint until, const char* what = nullptr, int32_t for_rank = -1) {
    int looks = mesh_is_busy() ? 1 : quick_spins_;  // spinning does not move bytes of the mesh
    for (int i = 0; i < looks; i++) {
      if (ready()) return {};
      relax();
    }
    return wait_slowly(std::ref(ready), until, what, for_rank);
  }
  Status wait(const Mesh::Ticket& ticket, const char* what) {
    return wait_until([&] { return mesh_->is_done(ticket); }, kNever, what, ticket.peer);
  }

  // ---- sleeping and waking ----
  // Wakes the ranks that sleep although something was sent to them. For a thread that drives, before it waits for
  // something that is not a rank: a wait for a rank does so itself.
  void wake_others() { bells_.ring_owed(Bells::Urgency::leaving); }
  void sleep(TimePoint until);  // engine thread, while it does not drive
  void wake();                  // ends a sleep or blocked wait of this process
  // The same, but only after that time; an alarm that is already set stays. It may fire when it is no longer needed.
  void wake_later(Duration after);
  void wake_driver();  // of this process, if it sleeps inside a wait
  void answer_bell();  // after sleep(): consumes the event, checks the peers
  // The same for a thread that is not the driver. False: the driver itself sleeps, and the event stays to wake it.
  bool answer_bell_for_driver();

  // Wakes a sleeping thread when the descriptor becomes readable; the driver must then read it. While a thread drives,
  // it wakes only the driver, if that sleeps.
  Status watch(int descriptor) { return sleeper_.watch_outside(descriptor); }
  void unwatch(int descriptor) { sleeper_.forget_outside(descriptor); }
  // Called by a driver inside a wait, before it sleeps and when it is due, with the time; returns when it has to be
  // called again. Keeps the control links going while a collective takes long. Must not wait.
  void set_chores(std::function<TimePoint(TimePoint)> chores);
  // This rank is being shut down: a wait inside a collective that lasts until then fails the world. Any thread. Once;
  // `origin`: why it leaves.
  void leave_by(TimePoint time, Origin origin);

 private:
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
  struct Wait {
    Predicate ready;
    TimePoint until, since;
    const char* what;
    int32_t for_rank;
  };

  Status wait_slowly(Predicate ready, TimePoint until, const char* what, int32_t for_rank);
  Status block(const Wait& wait);
  bool sleep_once(const Wait& wait, TimePoint until);
  void abort_late(const Wait& wait, TimePoint now, TimePoint give_up);
  // When a shutdown of this rank ends the wait, which must be inside a collective.
  TimePoint leave_by(const Wait& wait) const {
    return wait.for_rank >= 0 ? leave_by_.load(std::memory_order_seq_cst) : kNever;
  }
  void do_chores(TimePoint now) {
    if (now >= chores_at_) chores_at_ = chores_(now);
  }
  // After a failure nothing moves: the memory of what is still queued may be gone.
  bool mesh_is_busy() const { return mesh_ != nullptr && mesh_->is_busy() && !failure_.is_set(); }
  bool move_mesh() { return mesh_is_busy() && mesh_->progress(); }
  const std::string& my_name() const { return group_.name_of(group_.world_rank(control_.rank)); }

  ControlView control_;
  const HostGroup& group_;
  Sleeper& sleeper_;
  MessageRings& messages_;
  Bells& bells_;
  Failure& failure_;
  Peers& peers_;
  const WaitSettings settings_;
  const int quick_spins_;  // looks before the clock is read for the first time
  Mesh* mesh_ = nullptr;   // null: there are no other hosts
  YieldChoice yielding_;
  std::function<TimePoint(TimePoint)> chores_;
  TimePoint chores_at_ = kNever;        // when they are due
  std::atomic<uint32_t> entries_{0};    // calls of enter()
  std::atomic<bool> naps_{false};       // see sleep()
  std::atomic<bool> alarm_set_{false};  // and no thread has been woken since
  std::atomic<TimePoint> leave_by_{kNever};
  Origin departure_;  // set before leave_by_
};

}  // namespace hvd
