// What a host discovery script says, and when to run it again. Pure: the launcher runs the process.
//
//   Discovery discovery(settings, now);
//   switch (discovery.next_step(now)) ...                    // at next_timer(): start the script, or kill the one
//   running discovery.ended({.code = 0, .output = text}, now)        // its process has ended; says what is new
//
// A script that fails, hangs or prints nonsense is reported once and survived: the last good answer stays. Only a first
// run that fails ends the job: nothing is known then, and most often the script's name is wrong.
// Thread rule: one caller at a time.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "elastic/events.h"

namespace hvd::elastic {

struct DiscoveryAnswer {
  std::vector<HostSlots> hosts;       // in the order of the lines, each once
  std::vector<std::string> mistakes;  // lines that were skipped, and why; of many, the first few
};

// Lines `host` or `host:slots`; an IPv6 address with slots is in brackets. Empty lines and what follows a # do not
// count. A host that is named twice has the slots named last.
DiscoveryAnswer parse_discovery(std::string_view output, int default_slots);

struct DiscoverySettings {
  int default_slots = 1;           // --slots-per-host
  Duration every = seconds(1);     // from start to start, and at least `pause` after the last end
  Duration pause = seconds(0.25);  // a slow script does not run all the time
  Duration slow = seconds(5);      // a run that takes longer is reported
  Duration limit = seconds(60);    // and one that takes so long is killed
};

class Discovery {
 public:
  Discovery(DiscoverySettings settings, TimePoint now) : settings_(settings), timer_(now) {}

  enum class Step { nothing, start, kill };
  // What the caller has to do now. After `start` the run counts as under way until ended(); `kill` comes once per run.
  Step next_step(TimePoint now, std::vector<Say>& said);
  TimePoint next_timer() const { return timer_; }

  struct Run {
    int code = 0;             // of exit()
    int signal = 0;           // or what killed it
    std::string output = {};  // its stdout
    std::string errors = {};  // the end of its stderr, or why it could not be started (with a code that is not 0)
  };
  struct Outcome {
    std::optional<HostsDiscovered> hosts = {};  // when they are not those of the last good answer
    std::vector<Say> said = {};
    Status status = {};  // not ok: the first run failed, the job cannot go on
  };
  Outcome ended(const Run& run, TimePoint now);

 private:
  void report_failure(const Run& run, Outcome& outcome);
  void report_mistakes(const DiscoveryAnswer& answer, Outcome& outcome);

  DiscoverySettings settings_;
  TimePoint timer_;
  std::optional<TimePoint> started_;  // a run is under way
  bool killed_ = false;               // it was told to end
  bool said_slow_ = false;            // of this stretch of slow runs
  int failures_ = 0;                  // since the last good run
  bool said_mistakes_ = false;        // of this stretch of runs with wrong lines
  std::optional<std::vector<HostSlots>> last_;
};

}  // namespace hvd::elastic
