// Parses the output of a host discovery script, and decides when to run it. Pure: the launcher runs the process.
//
//   Discovery discovery(settings, now);
//   switch (discovery.next_step(now)) ...                    // at next_timer(): start the script, or kill the one
//   running discovery.ended({.code = 0, .output = text}, now)        // its process has ended; says what is new
//
// A script that fails, hangs or prints invalid output is reported once; the last valid result stays in effect. Only a
// failed first run ends the job: there is no earlier result, and usually the script's name is wrong. Thread rule: one
// caller at a time.
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
  std::vector<std::string> mistakes;  // lines that were skipped, with reasons; only the first few
};

// Lines `host` or `host:slots`; an IPv6 address with slots is in brackets. Empty lines and text after a # are ignored.
// If a host is listed twice, the last number of slots counts.
DiscoveryAnswer parse_discovery(std::string_view output, int default_slots);

struct DiscoverySettings {
  int default_slots = 1;           // --slots-per-host
  Duration every = seconds(1);     // from start to start, and at least `pause` after the last end
  Duration pause = seconds(0.25);  // a slow script does not run permanently
  Duration slow = seconds(5);      // a run that takes longer is reported
  Duration limit = seconds(60);    // and one that takes this long is killed
};

class Discovery {
 public:
  Discovery(DiscoverySettings settings, TimePoint now) : settings_(settings), timer_(now) {}

  enum class Step { nothing, start, kill };
  // What the caller must do now. After `start` the run is in progress until ended(); `kill` is returned once per run.
  Step next_step(TimePoint now, std::vector<Say>& said);
  TimePoint next_timer() const { return timer_; }

  struct Run {
    int code = 0;             // of exit()
    int signal = 0;           // or the signal that killed it
    std::string output = {};  // its stdout
    std::string errors = {};  // the last part of its stderr, or why it could not be started (with a nonzero code)
  };
  struct Outcome {
    std::optional<HostsDiscovered> hosts = {};  // set if they differ from the last valid result
    std::vector<Say> said = {};
    Status status = {};  // not ok: the first run failed, the job cannot continue
  };
  Outcome ended(const Run& run, TimePoint now);

 private:
  void report_failure(const Run& run, Outcome& outcome);
  void report_mistakes(const DiscoveryAnswer& answer, Outcome& outcome);

  DiscoverySettings settings_;
  TimePoint timer_;
  std::optional<TimePoint> started_;  // set while a run is in progress
  bool killed_ = false;               // it has been killed
  bool said_slow_ = false;            // reported for the current series of slow runs
  int failures_ = 0;                  // since the last successful run
  bool said_mistakes_ = false;        // reported for the current series of runs with invalid lines
  std::optional<std::vector<HostSlots>> last_;
};

}  // namespace hvd::elastic
