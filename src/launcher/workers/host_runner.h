// One host of a job as its driver sees it: workers are started and stopped there, and report events. Implementations:
// crew.h (this machine), remote_host.h (an agent elsewhere). Thread rule: one thread. Nothing blocks. An event loop
// drives it: add_to(), PollSet::wait(), on_reaped(), look(). Events come from those, and from set_work() and start().
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/end_report.h"
#include "launcher/command_line/tunables.h"
#include "launcher/processes/poll_set.h"
#include "launcher/processes/process.h"

namespace hvd::launcher {

inline constexpr Duration kGrace = std::chrono::seconds(5);  // from SIGTERM to SIGKILL

enum class WorkerStream : uint8_t { out, err };

// What the workers of a job run, on any host.
struct Work {
  std::vector<std::string> command;
  std::string directory;  // working directory; if it does not exist on the host, the host chooses
  Variables variables;    // override the host's environment
  Variables defaults;     // overridden by the host's environment
  std::string bind_to;    // "", "none", "core" or "numa"
};

// One worker.
struct Start {
  int worker = 0;  // its id in events: its rank in a static job, the driver's number in an elastic one
  int local_rank = 0, local_size = 1;
  Variables variables;  // added to those of the work
};

// What is to be told of workers; see HostEvents::on_observed().
struct ObserveRequest {
  uint64_t id = 0;
  int32_t worker = -1;     // -1: all
  bool stacks = false;     // which takes a moment
  int64_t operations = 0;  // at most so many of the last ones
};

struct Ended {
  Ending ending;
  bool out_of_memory = false;  // the kernel reports that it killed for lack of memory
  bool was_stopped = false;    // by us
};

class HostEvents {
 public:
  virtual void on_started(int worker, pid_t pid) = 0;
  virtual void on_not_started(int worker, std::string_view reason) = 0;
  virtual void on_output(int worker, WorkerStream stream, std::string_view bytes) = 0;
  virtual void on_output_end(int worker, WorkerStream stream) = 0;  // once per stream; may come after the worker's end
  virtual void on_report(int worker, const EndReport& report) = 0;  // before its end: the reason
  virtual void on_ended(int worker, const Ended& ended) = 0;
  // The answer to observe(): a JSON array of the workers, see Crew::document().
  virtual void on_observed(uint64_t id, std::string_view json) = 0;
  virtual void on_notice(std::string_view text) = 0;  // a message for the user
  virtual void on_empty() = 0;                        // after stop() or kill(): no process is left, and no more output
  // The host is unreachable, with all its workers. Not `is_cause`: it was told to stop, but did not.
  virtual void on_lost(std::string_view reason, bool is_cause) = 0;

 protected:
  ~HostEvents() = default;
};

class HostRunner {
 public:
  virtual ~HostRunner() = default;
  virtual void set_work(const Work& work) = 0;  // once, before the first start()
  virtual void start(const Start& start) = 0;
  // SIGTERM to one worker and all its processes, SIGKILL after the grace period; SIGKILL at once to those of an ended
  // worker.
  virtual void stop(int worker) = 0;
  virtual void stop() = 0;   // the same for all, including leftover processes; on_empty() follows
  virtual void kill() = 0;   // immediately
  virtual void leave() = 0;  // after on_empty(): the host is no longer needed
  virtual bool has_left() const = 0;
  virtual void hold_output(WorkerStream stream, bool hold) = 0;  // stops or resumes reading this output of the workers
  virtual void observe(const ObserveRequest& request) = 0;       // answered once, unless the host is lost
  virtual void add_to(PollSet& set) = 0;
  virtual void on_reaped(pid_t pid, int status) = 0;  // a child of this process has ended
  virtual void look() = 0;                            // after every wait
};

}  // namespace hvd::launcher
