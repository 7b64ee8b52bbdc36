// Runs the user's discovery script repeatedly, without waiting for it; elastic/discovery.h decides when, and parses its
// output. Thread rule: one thread; an event loop drives it: add_to(), wait, on_reaped(), look().
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "elastic/discovery.h"
#include "launcher/processes/poll_set.h"
#include "launcher/processes/process.h"

namespace hvd::launcher {

class DiscoveryScript {
 public:
  DiscoveryScript(std::string script, const elastic::DiscoverySettings& settings)
      : script_(std::move(script)), discovery_(settings, Clock::now()) {}

  void add_to(PollSet& set);
  void on_reaped(pid_t pid, int status);
  // After every wait: results of runs that ended, and messages.
  struct News {
    std::vector<elastic::HostsDiscovered> hosts;
    std::vector<elastic::Say> said;
    Status status;  // not ok: the job cannot continue
  };
  News look();
  void stop();  // no more runs; kills the current one

 private:
  void start();
  static void read(UniqueFd& fd, std::string& into, size_t most);
  void read_all();
  void finish(const elastic::Discovery::Run& run);

  std::string script_;
  elastic::Discovery discovery_;
  std::optional<Child> child_;
  std::string output_, errors_;
  News news_;
  bool is_stopped_ = false;
};

}  // namespace hvd::launcher
