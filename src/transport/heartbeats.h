// Heartbeats of the ranks of one host, in shared memory: needed because a stopped process keeps its sockets open. In
// worlds that span hosts, and in elastic ones, every rank beats about once a second and checks the others as often.
// Thread rule: one caller at a time, the watch (engine/watch.h).
#pragma once

#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "model/host_group.h"
#include "transport/control_view.h"

namespace hvd {

class Heartbeats {
 public:
  // `group` must outlive this.
  Heartbeats(ControlView control, const HostGroup& group)
      : control_(control), group_(group), pulses_(static_cast<size_t>(control.size)) {}

  void beat();
  void stop();  // this rank leaves; it must not be reported as silent
  // Not ok (peer_lost): names a rank of this host that has not beaten for `limit`.
  Status find_silent(TimePoint now, Duration limit);

 private:
  struct Pulse {
    uint64_t beats = 0;
    TimePoint changed{};
  };

  ControlView control_;
  const HostGroup& group_;
  std::vector<Pulse> pulses_;  // by rank
  TimePoint looked_at_{};      // if this is long ago, this process was not scheduled, and the silence is ignored
};

}  // namespace hvd
