// Control messages between the root of a host and its other ranks, through rings in shared memory: framed, in order, of
// any length. Data that does not fit is kept and sent by a later flush(). Does not wake ranks; see Bells. Thread rule:
// the thread that drives.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/wire.h"
#include "transport/control_view.h"
#include "transport/line_ring.h"

namespace hvd {

class MessageRings {
 public:
  // `on_broken` is called with the rank, of this host, that sent an invalid message.
  MessageRings(ControlView control, std::function<void(int32_t)> on_broken);

  void send(ByteView message);                       // the root: to every other rank; the others: to the root
  bool receive_up(int32_t from, ByteView& message);  // root; the view is valid until the next call
  bool receive_down(ByteView& message);
  bool has_incoming() const;  // cheap: is there anything to receive?
  bool flush();               // sends kept data; false: some is still waiting for room
  bool has_unsent() const { return !unsent_.empty(); }
  bool is_unread() const;  // not the root: the root has not read everything we sent

  // Calls visit(rank) for every rank that has not read everything sent to it. Those that have are skipped until the
  // next message.
  template <class Visit>
  void each_behind(Visit&& visit) {
    if (!owed_) return;
    owed_ = false;
    if (!control_.is_root()) {
      owed_ = is_unread();
      if (owed_) visit(0);
      return;
    }
    for (int32_t peer = 1; peer < control_.size; peer++) {
      if (control_.of(peer).down_read.value.load(std::memory_order_relaxed) == written_) continue;
      owed_ = true;
      visit(peer);
    }
  }

 private:
  struct Reader {
    RingReader frame;
    uint64_t read = 0;
  };
  uint64_t slowest_reader() const;
  std::span<MessageLine> my_ring() const;

  ControlView control_;
  std::function<void(int32_t)> on_broken_;
  Bytes unsent_;                // frames that are not completely in the ring
  size_t unsent_sent_ = 0;      // bytes of it that are in the ring
  uint64_t written_ = 0;        // lines ever written to our ring
  uint64_t slowest_known_ = 0;  // every reader of our ring has reached at least this line
  bool owed_ = false;           // a reader may not have read everything
  Reader down_;
  std::vector<Reader> up_;  // root, by rank
};

}  // namespace hvd
