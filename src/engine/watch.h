// Sends this rank's heartbeats and checks those of other ranks. In worlds that span hosts, and in elastic ones, a
// stopped process must be detected although its sockets stay open.
//
// It is a separate thread. The driving thread may be inside one copy, reduction, page fault or callback for longer than
// a rank may be silent, and such a rank is not lost: HOROVOD_COLLECTIVE_TIMEOUT_SECONDS limits how long operations may
// take. So nothing here waits for the driver. The thread beats in shared memory, keeps the control links going, checks
// the connections, and ends the world when a rank is silent. It wakes about once a second.
//
// Created by the engine before anything that can lose a rank. Thread rule: any thread.
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

// Whether a silent rank ends the world. On one host that is a stopped process, without which only an elastic job can
// continue.
inline bool keeps_watch(const World& world, const Config& config) { return !world.host_of.empty() || config.elastic; }

struct WatchSettings {
  Duration heartbeat = std::chrono::seconds(1);  // between two beats
  Duration silence = std::chrono::seconds(5);    // time after which a rank counts as lost
};

class Watch {
 public:
  // `links` is null if this rank has none. Both must outlive the watch, or its stop().
  // `observer` is told of beats and connections; null: nobody is.
  Watch(Transport& transport, HostLinks* links, WatchSettings settings, observe::Writer* observer = nullptr);

  // The connection to a rank of another host has ended. If the rank left because of a failure that is being propagated,
  // this is only a consequence, so the cause gets a moment to arrive.
  void report_loss(const Status& status);
  // This rank leaves: the others no longer expect its heartbeats.
  void stop();

 private:
  void run(const std::stop_token& stop);
  void beat(TimePoint now);
  void tell_observer() const;
  TimePoint end_by_loss(TimePoint now);  // if it is due; otherwise returns when
  TimePoint keep_links(TimePoint now);   // returns the time of the next call

  Transport& transport_;
  HostLinks* const links_;
  const WatchSettings settings_;
  observe::Writer* const observer_;
  std::mutex mutex_;  // guards the members below
  std::condition_variable_any lost_;
  Status loss_;  // the first one
  TimePoint loss_due_ = kNever;
  std::jthread thread_;  // last: it uses all of the above
};

}  // namespace hvd
