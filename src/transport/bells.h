// Wakes the other ranks of this host, and only those that need it: a rank whose thread polls memory sees new data
// itself. Thread rule: the thread that drives; ring() and ring_all() any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "base/fd.h"
#include "transport/control_view.h"
#include "transport/message_rings.h"

namespace hvd {

class Bells {
 public:
  // `bells`: the eventfd of each rank. Both must outlive this.
  Bells(ControlView control, const std::vector<UniqueFd>& bells, MessageRings& messages)
      : control_(control), bells_(bells), messages_(messages) {}

  void ring(int32_t rank) const;
  void ring_all() const;
  void silence_mine() const;  // consumes the event of this rank's bell

  // `patient`: skips ranks that are only paused. `leaving`: this rank will not check again, so a rank that drives is
  // asked to check once more before it leaves.
  enum class Urgency { patient, now, leaving };
  // Wakes the ranks that have not seen a message that was sent, or data that was posted with owe_data().
  void ring_owed(Urgency urgency);
  void owe_data() { owes_data_ = true; }
  void ring_blocked() const;  // wakes the ranks that sleep inside a wait

 private:
  void ring_reader(int32_t peer, Urgency urgency) const;

  ControlView control_;
  const std::vector<UniqueFd>& bells_;
  MessageRings& messages_;
  bool owes_data_ = false;  // blocked ranks may need a bell for data posted in a channel
};

}  // namespace hvd
