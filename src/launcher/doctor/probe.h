// Facts about this host: the installed horovod, the resources for a process of a job, and whether libhorovod.so works.
// Thread rule: one thread; find_installation() starts a process and waits for it.
#pragma once

#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "launcher/doctor/facts.h"

namespace hvd::launcher {

// libhorovod.so through its C interface, loaded at run time: the probe tests what the training will use.
class Library {
 public:
  static Result<Library> load(const std::string& path);

  const std::string& version() const { return version_; }

  // Forms the world of the environment, reduces 1 MiB several times and returns the shortest time. Blocks until
  // `deadline`, or slightly longer. After an error the process should end without destroying this object.
  Trial try_allreduce(TimePoint deadline);

 private:
  explicit Library(void* handle) : handle_(handle) {}  // stays open: the library has threads
  Result<double> time_allreduce(TimePoint deadline);
  template <class Function>
  Function* find(const char* name) const;

  void* handle_;
  std::string version_;
  std::vector<float> input_, output_;  // an abandoned operation still uses them
};

// Queries the Python beside horovodrun or on PATH, without importing a framework. Does not include the library's
// version, which needs Library. `program`: the command that started horovodrun.
Installation find_installation(const std::string& program, Duration patience);

// `root` is prepended to /proc and /sys; tests pass their own.
Resources read_resources(const std::string& root = "");

}  // namespace hvd::launcher
