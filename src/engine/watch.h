// Shows the other ranks that this process runs, and looks whether they do. In worlds that span hosts, and in elastic
// ones, a process that is stopped must be noticed although its sockets stay open.
//
// It is a thread of its own. The thread that drives may be inside one copy, reduction, page fault or callback for
// longer than a rank may be silent, and such a rank is not lost: HOROVOD_COLLECTIVE_TIMEOUT_SECONDS bounds how long
// operations may take. So nothing here waits for the driver. The thread beats in shared memory, keeps the control links
// going, looks at the connections, and ends the world when a rank is silent. It wakes about once a second.
//
// Made by the engine before anything that can lose a rank. Thread rule: any thread.
#pragma once

#include <condition_variable>
#include <mutex>
#include <stop_token>
#include <thread>

#include "base/clock.h"
#include "base/status.h"
#include "engine/host_links.h"
#include "model/config.h"
#include "model/world.h"
#include "observe/writer.h"
#include "transport/transport.h"

namespace hvd {

// Whether a rank that falls silent ends the world. On one host that is a process that was stopped, which only
// an elastic job can go on without.
inline bool keeps_watch(const World& world, const Config& config) { return !world.host_of.empty() || config.elastic; }

struct WatchSettings {
  Duration heartbeat = std::chrono::seconds(1);  // between two beats
  Duration silence = std::chrono::seconds(5);    // after which a rank counts as lost
};

class Watch {
 public:
  // `links` is null where this rank has none. Both must outlive the watch, or its stop().
  // `observer` is told of beats and connections; null: nobody is.
  Watch(Transport& transport, HostLinks* links, WatchSettings settings, observe::Writer* observer = nullptr);

  // The connection to a rank of another host has ended. That is only the effect where the rank left because of a
  // failure that is being spread, so the cause is given a moment to arrive.
  void report_loss(const Status& status);
  // This rank leaves: the others no longer expect its beats.
  void stop();

 private:
  void run(const std::stop_token& stop);
  void beat(TimePoint now);
  void tell_observer() const;
  TimePoint end_by_loss(TimePoint now);  // if it is due; otherwise says when
  TimePoint keep_links(TimePoint now);   // when they want to be called again

  Transport& transport_;
  HostLinks* const links_;
  const WatchSettings settings_;
  observe::Writer* const observer_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable_any lost_;
  Status loss_;  // the first one
  TimePoint loss_due_ = kNever;
  std::jthread thread_;  // last: it uses all of the above
};

}  // namespace hvd
