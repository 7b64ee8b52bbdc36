// Whether the other processes are alive: a socket that closes without a goodbye means that the process died. Thread
// rule: any thread.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <vector>

#include "model/host_group.h"
#include "transport/mesh.h"
#include "transport/sleeper.h"

namespace hvd {

class Peers {
 public:
  // `on_lost` is called with the rank, of this host, whose process has died. The others must outlive this.
  Peers(const HostGroup& group, const Sleeper& sleeper, std::function<void(int32_t)> on_lost);

  void attach(Mesh* mesh) { mesh_ = mesh; }  // once, before other threads call
  void check();
  // From now on a peer that leaves is not a failure: the world has been shut down.
  void expect_departures() { departures_expected_ = true; }
  bool expects_departures() const { return departures_expected_; }
  void say_goodbye();  // tells the peers that the end of this process's sockets is not a failure

 private:
  const HostGroup& group_;
  const Sleeper& sleeper_;
  std::function<void(int32_t)> on_lost_;
  Mesh* mesh_ = nullptr;  // null: no other hosts
  std::atomic<bool> departures_expected_{false};
  std::mutex mutex_;            // guards the members below
  std::vector<bool> departed_;  // have said goodbye
  std::vector<bool> closed_;    // their socket has closed
};

}  // namespace hvd
