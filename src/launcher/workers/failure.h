// Why a job failed: which of the things that went wrong was the cause, and how to tell the user.
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
  // In the order of how likely each is the cause of the others. `told`: it did not end badly, or was stopped before it
  // could, but others say that they failed because of it.
  enum class Kind { host_stuck, told, exit, signal, not_started, host_lost };
  Kind kind = Kind::exit;
  std::string who = {};  // "worker 3": where it is not simply the rank
  std::string host;
  int rank = -1;  // not of hosts
  pid_t pid = -1;
  Ended ended;                           // of exit and signal
  std::string reason;                    // of the others
  std::optional<EndReport> report = {};  // what the worker said of its end
  TimePoint when = kNever;               // kNever: not known

  bool is_consequence() const { return report && report->is_consequence(); }
};

// The cause is not always what is heard of first: when a rank fails, the others fail for that and often end sooner.
// They report which rank they have lost, and that one is the cause. Without reports (a program without Horovod), a
// rank that was killed and a host that is lost are more likely the cause than a rank that ended by itself.
// `failures` in the order in which they were heard of; not empty.
Failure find_cause(const std::vector<Failure>& failures);

// The rank that is about to end as this report tells: the one that raised an exception, or that was lost. -1: none.
int awaited_rank(const EndReport& report);

// "raised ValueError: bad batch": what the worker said of its own failure; empty: nothing.
std::string own_words(const std::optional<EndReport>& report);

// Reports the cause to the program that started this launcher and gave it a pipe for that: horovod.run, or another
// launcher.
void tell_caller(const Failure& cause);

// "rank 3", "ranks 0, 2, 3"; a long list is cut.
std::string name_ranks(std::vector<int> ranks);

// "rank 1 on hostb failed: pid 4711, exit code 3, 12.3 s after the start"
std::string describe(const Failure& failure, TimePoint began);

// What became of one rank after the cause.
struct Aftermath {
  int rank = -1;
  std::optional<EndReport> report = {};
  std::optional<Ending> ending = {};
};

// "After that: ranks 0, 2 lost it." and a line's end: each kind of end in a few words. Empty: nothing to tell.
std::string describe(const std::vector<Aftermath>& after, const Failure& cause);

// "1 rank", "3 ranks"
std::string ranks_text(size_t count);

// The summary of a job whose ranks another launcher started, so that only their own reports are known.
// Empty: no rank failed, or none said so.
std::string summary_of(const std::vector<EndReport>& reports);
Failure cause_in(const std::vector<EndReport>& reports);  // not empty

// What to do about it, for causes that are known; may be empty. `lines` are the last ones of the rank's stderr.
std::string hint_for(const Failure& failure, const std::vector<std::string_view>& lines);

}  // namespace hvd::launcher
