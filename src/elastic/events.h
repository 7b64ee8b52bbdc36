// What the driver hears and what it asks for. The launcher (or a Python host, through the C ABI) turns what
// happens to its processes into events, and does what the actions say, in their order.
// Thread rule: plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/log.h"
#include "model/world.h"

namespace hvd::elastic {

enum class WorkerId : uint64_t {};  // one process; given by the driver, never used twice. In a static job: its rank

struct HostSlots {
  std::string name;
  int slots = 0;
  bool operator==(const HostSlots&) const = default;
};

// Events.

struct HostsDiscovered {
  std::vector<HostSlots> hosts;  // all that there are now, each once
};

// A worker is connected and asks for its next place: for the first time, or because its world ended.
struct WorkerReady {
  WorkerId id{};
  // The rank of its last generation whose heartbeats stopped, if that was the end of it. One that is accused so and
  // does not ask itself soon is stopped; the others wait for anybody else until `regroup_grace` has passed. A
  // connection that closed is no reason: that worker has died, and its end is reported, or it has begun to re-form
  // before this one.
  std::optional<int> lost_rank = {};
};

struct WorkerExited {
  WorkerId id{};
  int code = 0;              // of exit()
  int signal = 0;            // or what killed it
  bool was_stopped = false;  // by its host. If the driver did not ask for that, the host ends by itself
};

// The worker has told why it is about to end.
struct WorkerReported {
  WorkerId id{};
  std::optional<int> awaited = {};  // the rank that, as this one says, is about to end as well; may be its own
};

// The worker will go at its next commit (SIGTERM: its machine is taken away).
struct WorkerLeaving {
  WorkerId id{};
  std::string reason;
};

struct StartFailed {  // there is no process
  WorkerId id{};
  std::string reason;
};

// Nothing is known of the host any more. Its workers count as dead; no WorkerExited is needed for them.
struct HostLost {
  std::string host;
  std::string reason;
};

struct StopJob {  // by the user
  std::string reason;
  int exit_code = 1;
};

struct Timer {};  // next_timer() has come; harmless at any other time

using Event = std::variant<HostsDiscovered, WorkerReady, WorkerExited, WorkerReported, WorkerLeaving, StartFailed,
                           HostLost, StopJob, Timer>;

// Actions.

struct StartWorker {
  WorkerId id{};
  std::string host;
  int slot = 0;  // of the host; no other living worker has it
};

// End the process, politely first. WorkerExited must follow, also for one whose start is still under way.
struct StopWorker {
  WorkerId id{};
};

// Static jobs: end everything on all hosts, politely first, also what workers have left behind. WorkerExited must
// follow for each worker, or StartFailed, or HostLost.
struct StopAll {};

enum class HostChange { removed = 1, added = 2, mixed = 3 };  // as the workers' Python side numbers them

struct NotifyWorkers {
  std::vector<WorkerId> ids;  // the ranks of the present generation
  HostChange change = HostChange::added;
  double timestamp = 0;  // seconds since 1970, later than that of any notice before
};

struct Place {
  WorkerId id{};
  std::string host;
  int rank = 0, size = 1;
  int local_rank = 0, local_size = 1;
  int cross_rank = 0, cross_size = 1;
  bool operator==(const Place&) const = default;
};

// The answer to every worker in `places`: all of them have asked and wait. In a static job it comes before they start.
struct AssignGeneration {
  Generation generation{};
  std::vector<Place> places;     // by rank; the ranks of a host follow each other
  std::vector<HostSlots> hosts;  // in the order of their ranks, with how many they have
};

// The answer to a worker that has asked and gets no place (rank -1): it ends with exit code 0.
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
