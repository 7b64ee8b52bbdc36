// The server of a probe: probes of other hosts connect to it at every address that it publishes. A connection that
// proves to belong to the job is accepted, and every byte it sends is answered with this host's clock time. Thread
// rule: created and destroyed by one thread; it works on its own thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "launcher/doctor/facts.h"
#include "net/acceptor.h"

namespace hvd::launcher {

using WallClock = std::function<double()>;  // seconds since 1970
double wall_time();

class ProbeDoor {
 public:
  static Result<std::unique_ptr<ProbeDoor>> open(const std::vector<std::string>& interfaces,
                                                 const Credentials& credentials, int32_t rank,
                                                 WallClock clock = wall_time);
  ~ProbeDoor();
  ProbeDoor(const ProbeDoor&) = delete;
  ProbeDoor& operator=(const ProbeDoor&) = delete;

  const std::vector<Address>& addresses() const { return addresses_; }

 private:
  ProbeDoor(std::unique_ptr<Acceptor> acceptor, UniqueFd bell, WallClock clock);
  void serve();
  void answer(std::vector<Accepted>& guests) const;

  std::unique_ptr<Acceptor> acceptor_;
  UniqueFd bell_;  // rung to end the thread
  WallClock clock_;
  std::vector<Address> addresses_;
  std::jthread thread_;
};

}  // namespace hvd::launcher
