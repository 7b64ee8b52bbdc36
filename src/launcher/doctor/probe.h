// What a probe finds out about its own host: which horovod it has, what the machine offers to a process of a job, and
// whether libhorovod.so works. Thread rule: one thread; find_installation() starts a process and waits for it.
#pragma once

#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "launcher/doctor/facts.h"

namespace hvd::launcher {

// libhorovod.so through its C interface, loaded at run time: the probe tries what the training will use.
class Library {
 public:
  static Result<Library> load(const std::string& path);

  const std::string& version() const { return version_; }

  // Forms the world of the environment, reduces 1 MiB a few times and says how long the fastest took. Blocks, but not
  // (much) longer than `deadline`. After an error the process should end without destroying this.
  Trial try_allreduce(TimePoint deadline);

 private:
  explicit Library(void* handle) : handle_(handle) {}  // stays open: the library has threads
  Result<double> time_allreduce(TimePoint deadline);
  template <class Function>
  Function* find(const char* name) const;

  void* handle_;
  std::string version_;
  std::vector<float> input_, output_;  // an operation that is given up goes on with them
};

// Asks the Python beside horovodrun or on PATH; imports no framework. The library's version is left out, as that needs
// Library. `program` is how horovodrun was called.
Installation find_installation(const std::string& program, Duration patience);

// `root` comes before /proc and /sys; tests have their own.
Resources read_resources(const std::string& root = "");

}  // namespace hvd::launcher
