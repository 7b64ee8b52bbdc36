// libhorovod.so through its C interface, loaded at run time: what the probe tries is what the training will use.
// Thread rule: one thread.
#pragma once

#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "launcher/doctor/facts.h"

namespace hvd {

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

}  // namespace hvd
