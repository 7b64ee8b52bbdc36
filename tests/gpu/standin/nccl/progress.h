// How calls make progress: at once for blocking communicators; on a thread, with the result "in progress", for others.
// And the rule that one thread at a time is inside NCCL per GPU, and none while one aborts.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "nccl/communicator.h"

namespace standin::nccl {

// A call on a communicator's GPU, for as long as it lasts. A second thread inside is a violation.
class Inside {
 public:
  Inside(int gpu, const char* call, bool aborts = false);
  ~Inside();
  Inside(const Inside&) = delete;

 private:
  int gpu_;
  bool aborts_;
};

// Does the work for these communicators, or lets a thread do it. Returns the result of the call. `work` returns a
// result and runs without core().mutex; `site` is the call, `streams` those
// that it launches on.
int make_progress(const std::vector<Communicator*>& communicators, const SitePointer& site,
                  const std::vector<Stream*>& streams, std::function<int()> work);

// What ncclCommGetAsyncError says. Ends the state "in progress" when the work is done: a program that does not ask is
// wrong even if the work happened to be quick. core().mutex is held.
int look_at_progress(Communicator& communicator);

// Waits until no thread makes progress on it and no launch of it is left, or it is aborted. The lock is released
// meanwhile.
void wait_until_idle(Communicator& communicator, std::unique_lock<std::mutex>& lock);

}  // namespace standin::nccl
