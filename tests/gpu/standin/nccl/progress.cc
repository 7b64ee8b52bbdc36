#include "nccl/progress.h"

#include <pthread.h>

#include <chrono>
#include <map>
#include <thread>

#include "core/faults.h"
#include "core/settings.h"

namespace standin::nccl {
namespace {

struct Caller {
  std::thread::id thread;
  const char* call;
  Stack stack;
  bool aborts;
};
// By GPU; guarded by core().mutex. A thread may be inside twice: a group end calls what it collected.
std::map<int, std::vector<Caller>>& callers() {
  static auto& value = *new std::map<int, std::vector<Caller>>;
  return value;
}

void pause_a_moment(uint64_t decision) {
  switch (settings().schedule) {
    case Schedule::eager: return;
    case Schedule::lazy: std::this_thread::sleep_for(std::chrono::milliseconds(1)); return;
    case Schedule::random:
      if (randomly(decision, 3)) std::this_thread::sleep_for(std::chrono::microseconds(300));
      return;
  }
}

// The fault "busy": in progress for a while, or until an abort.
void stay_busy(Communicator& communicator) {
  const auto fault = fault_at("nccl.launch");
  if (!fault || fault->fault != Fault::busy) return;
  std::unique_lock lock(core().mutex);
  const auto aborted = [&] { return communicator.aborted.load(); };
  if (fault->value > 0) {
    core().changed.wait_for(lock, std::chrono::milliseconds(fault->value), aborted);
  } else {
    core().changed.wait(lock, aborted);
  }
}

void note_result(const std::vector<Communicator*>& communicators, int result) {
  for (Communicator* communicator : communicators) {
    int none = 0;
    if (result != kSuccess) communicator->error.compare_exchange_strong(none, result);
  }
}

}  // namespace

Inside::Inside(int gpu, const char* call, bool aborts) : gpu_(gpu), aborts_(aborts) {
  const Stack stack = here();
  const std::lock_guard lock(core().mutex);
  auto& inside = callers()[gpu];
  for (const Caller& other : inside) {
    // An abort may come while a thread is stuck inside; nothing may come during an abort.
    if (other.thread == std::this_thread::get_id() || (aborts && !other.aborts)) continue;
    violation(std::string("two threads in NCCL at the same time, GPU ") + std::to_string(gpu) + ":\n  one in " +
              other.call + ", called from\n" + to_text(other.stack) + "  the other in " + call + ", called from\n" +
              to_text(stack));
  }
  inside.push_back({std::this_thread::get_id(), call, stack, aborts});
}

Inside::~Inside() {
  const std::lock_guard lock(core().mutex);
  auto& inside = callers()[gpu_];
  for (size_t i = inside.size(); i-- > 0;) {
    if (inside[i].thread != std::this_thread::get_id() || inside[i].aborts != aborts_) continue;
    inside.erase(inside.begin() + static_cast<ptrdiff_t>(i));
    return;
  }
}

int make_progress(const std::vector<Communicator*>& communicators, const SitePointer& site,
                  const std::vector<Stream*>& streams, std::function<int()> work) {
  static std::atomic<uint64_t> count{0};
  const uint64_t decision = 0x10000000 + ++count;
  bool blocking = true;
  for (const Communicator* one : communicators) blocking = blocking && one->blocking;
  if (blocking || randomly(decision, 4)) {  // a result other than "in progress" is allowed
    const int result = work();
    note_result(communicators, result);
    return result;
  }
  {
    const std::lock_guard lock(core().mutex);
    for (Communicator* one : communicators) {
      one->busy = site;
      one->busy_streams = streams;
      ++one->workers;
    }
    for (Stream* stream : streams) stream->reserved_for = to_text(*site);
  }
  std::thread([=, work = std::move(work)] {
    ::pthread_setname_np(::pthread_self(), "standin-group");
    pause_a_moment(decision);
    for (Communicator* one : communicators) stay_busy(*one);
    note_result(communicators, work());
    const std::lock_guard lock(core().mutex);
    for (Communicator* one : communicators) --one->workers;
    core().changed.notify_all();
  }).detach();  // `workers` says when it has ended
  return kInProgress;
}

int look_at_progress(Communicator& communicator) {
  if (communicator.busy == nullptr) return communicator.error;
  if (communicator.workers > 0) return kInProgress;
  communicator.busy = nullptr;
  for (Stream* stream : std::exchange(communicator.busy_streams, {})) stream->reserved_for.clear();
  return communicator.error;
}

void wait_until_idle(Communicator& communicator, std::unique_lock<std::mutex>& lock) {
  core().changed.wait(lock, [&] { return communicator.workers == 0 && communicator.pending == 0; });
}

}  // namespace standin::nccl
