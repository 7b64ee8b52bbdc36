// Inputs and outputs of the driver. The launcher (or a Python host, through the C ABI) turns what happens to its
// processes into events, and carries out the actions in order. Thread rule: plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/log.h"
#include "model/world.h"

namespace hvd::elastic {

enum class WorkerId : uint64_t {};  // one process; assigned by the driver, never reused. In a static job: its rank

struct HostSlots {
  std::string name;
  int slots = 0;
  bool operator==(const HostSlots&) const = default;
};

// Events.

struct HostsDiscovered {
  std::vector<HostSlots> hosts;  // all current hosts, each once
};

// A worker is connected and asks for its next place: for the first time, or because its world ended.
struct WorkerReady {
  WorkerId id{};
  // The rank of its last generation whose heartbeats stopped, if that ended the generation. If that worker does not
  // report soon itself, it is stopped; for any other worker the job waits until `regroup_grace` has passed. A closed
  // connection is not given here: either the worker has died, which is reported separately, or it re-forms earlier than
  // this one.
  std::optional<int> lost_rank = {};
};

struct WorkerExited {
  WorkerId id{};
  int code = 0;              // of exit()
  int signal = 0;            // or the signal that killed it
  bool was_stopped = false;  // by its host. If the driver did not request it, the host is shutting down
};

// The worker has reported why it is about to end.
struct WorkerReported {
  WorkerId id{};
  std::optional<int> awaited = {};  // the rank that this report expects to end as well; may be its own
};

// The worker will leave at its next commit (SIGTERM: its machine is being taken away).
struct WorkerLeaving {
  WorkerId id{};
  std::string reason;
};

struct StartFailed {  // no process was created
  WorkerId id{};
  std::string reason;
};

// The host is unreachable. Its workers count as dead; no WorkerExited is needed for them.
struct HostLost {
  std::string host;
  std::string reason;
};

struct StopJob {  // by the user
  std::string reason;
  int exit_code = 1;
};

struct Timer {};  // next_timer() has been reached; harmless at any other time

using Event = std::variant<HostsDiscovered, WorkerReady, WorkerExited, WorkerReported, WorkerLeaving, StartFailed,
                           HostLost, StopJob, Timer>;

// Actions.

struct StartWorker {
  WorkerId id{};
  std::string host;
  int slot = 0;  // of the host; no other running worker has it
};

// End the process, first with SIGTERM. WorkerExited must follow, even if it is still being started.
struct StopWorker {
  WorkerId id{};
};

// Static jobs: end everything on all hosts, first with SIGTERM, including processes that workers have left behind. Each
// worker must be followed by WorkerExited, StartFailed, or HostLost.
struct StopAll {};

enum class HostChange { removed = 1, added = 2, mixed = 3 };  // the numbers that the workers' Python code uses

struct NotifyWorkers {
  std::vector<WorkerId> ids;  // the ranks of the current generation
  HostChange change = HostChange::added;
  double timestamp = 0;  // seconds since 1970, later than in any earlier notice
};

struct Place {
  WorkerId id{};
  std::string host;
  int rank = 0, size = 1;
  int local_rank = 0, local_size = 1;
  int cross_rank = 0, cross_size = 1;
  bool operator==(const Place&) const = default;
};

// The answer to every worker in `places`: all of them have asked and wait. In a static job it precedes their start.
struct AssignGeneration {
  Generation generation{};
  std::vector<Place> places;     // by rank; the ranks of a host are consecutive
  std::vector<HostSlots> hosts;  // in the order of their ranks, with their number of ranks
};

// The answer to a worker that gets no place (rank -1): it ends with exit code 0.
struct LeaveWorker {
  WorkerId id{};
  std::string reason;
};

struct Say {  // one decision of an elastic job and why; to be logged
  LogLevel level = LogLevel::info;
  std::string text;
};

struct Fail {  // the job has failed and its workers are being stopped; Finish follows
  std::string reason;
};

struct Finish {  // no worker is left; nothing comes after this
  int exit_code = 0;
};

using Action =
    std::variant<StartWorker, StopWorker, StopAll, NotifyWorkers, AssignGeneration, LeaveWorker, Say, Fail, Finish>;

}  // namespace hvd::elastic
