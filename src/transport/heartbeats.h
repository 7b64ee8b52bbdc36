// Heartbeats of the ranks of one host, in shared memory: a process that is stopped keeps its sockets open. In worlds
// that span hosts, and in elastic ones, every rank beats about once a second and looks at the others as often.
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
  void stop();  // this rank leaves and is not silent
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
  TimePoint looked_at_{};      // long ago: this process was not scheduled, and silence meanwhile is ignored
};

}  // namespace hvd
