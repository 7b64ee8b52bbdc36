// Why a job failed: finds the cause among several failures, and describes it to the user.
// Thread rule: plain values and pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "launcher/workers/host_runner.h"

namespace hvd::launcher {

struct Failure {
  // In order of likelihood to be the cause of the others. `told`: it did not fail, or was stopped before it could, but
  // others reported that they failed because of it.
  enum class Kind { host_stuck, told, exit, signal, not_started, host_lost };
  Kind kind = Kind::exit;
  std::string who = {};  // "worker 3": if it is not simply the rank
  std::string host;
  int rank = -1;  // not of hosts
  pid_t pid = -1;
  Ended ended;                           // of exit and signal
  std::string reason;                    // of the others
  std::optional<EndReport> report = {};  // the worker's report about its end
  TimePoint when = kNever;               // kNever: unknown

  bool is_consequence() const { return report && report->is_consequence(); }
};

// The cause is not always reported first: when a rank fails, the others fail as a consequence and often end sooner.
// They report which rank they have lost, and that rank is the cause. Without reports (a program without Horovod), a
// rank that was killed and a host that is lost are more likely the cause than a rank that exited. `failures` in the
// order of their arrival; not empty.
Failure find_cause(const std::vector<Failure>& failures);

// The rank that is about to end according to this report: the one that raised an exception, or that was lost. -1: none.
int awaited_rank(const EndReport& report);

// "raised ValueError: bad batch": the worker's report of its own failure; empty: none.
std::string own_words(const std::optional<EndReport>& report);

// Reports the cause through a pipe to the program that started this launcher, if it provided one: horovod.run, or
// another launcher.
void tell_caller(const Failure& cause);

// "rank 3", "ranks 0, 2, 3"; a long list is truncated.
std::string name_ranks(std::vector<int> ranks);

// "rank 1 on hostb failed: pid 4711, exit code 3, 12.3 s after the start"
std::string describe(const Failure& failure, TimePoint began);

// How one rank ended after the cause.
struct Aftermath {
  int rank = -1;
  std::optional<EndReport> report = {};
  std::optional<Ending> ending = {};
};

// "After that: ranks 0, 2 lost it." and a newline: each kind of end in a few words. Empty: nothing to report.
std::string describe(const std::vector<Aftermath>& after, const Failure& cause);

// "1 rank", "3 ranks"
std::string ranks_text(size_t count);

// The summary of a job whose ranks another launcher started; it uses only their own reports. Empty: no rank reported a
// failure.
std::string summary_of(const std::vector<EndReport>& reports);
Failure cause_in(const std::vector<EndReport>& reports);  // not empty

// Advice for known causes; may be empty. `lines` are the last lines of the rank's stderr.
std::string hint_for(const Failure& failure, const std::vector<std::string_view>& lines);

}  // namespace hvd::launcher
