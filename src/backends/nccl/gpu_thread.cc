// The GPU thread of the NCCL backend: launches, completion, deadlines, and the abort. See nccl_backend.h.
#include <fmt/core.h>
#include <pthread.h>

#include <algorithm>
#include <future>

#include "backends/nccl/nccl_backend.h"
#include "base/log.h"

namespace hvd {
namespace {

constexpr Duration kSpin = std::chrono::microseconds(200);  // after something happened
constexpr Duration kLook = std::chrono::microseconds(500);  // between two looks at what is in flight
constexpr Duration kErrorLook = std::chrono::milliseconds(5);
constexpr Duration kAbortLimit = std::chrono::seconds(20);
constexpr Duration kFarewell = std::chrono::seconds(5);

bool is_over(TimePoint deadline) { return deadline != kNever && Clock::now() >= deadline; }
TimePoint limit_from(TimePoint start, Duration limit) { return limit > Duration{} ? start + limit : kNever; }

}  // namespace

void NcclBackend::work(const std::stop_token& stop) {
  ::pthread_setname_np(::pthread_self(), "hvd-gpu");
  TimePoint quiet_since = Clock::now(), looked_at{};
  while (true) {
    std::deque<NcclJob> jobs;
    {
      std::unique_lock lock(mutex_);
      auto has_work = [&] { return !handed_over_.empty() || (given_up_ && !is_aborted_); };
      if (in_flight_.empty()) {
        changed_.wait(lock, stop, has_work);
      } else if (Clock::now() - quiet_since > kSpin) {
        changed_.wait_for(lock, stop, kLook, has_work);
      }
      jobs.swap(handed_over_);
    }
    for (NcclJob& job : jobs) start(job);
    bool happened = !jobs.empty() || look_at_jobs();
    if (happened) quiet_since = Clock::now();
    if (!in_flight_.empty() && Clock::now() - looked_at > kErrorLook) {
      look_for_errors();
      looked_at = Clock::now();
    }
    if (is_given_up() && !is_aborted_) abort_all();
    if (stop.stop_requested() && in_flight_.empty()) {
      std::lock_guard lock(mutex_);
      if (handed_over_.empty()) break;
    }
  }
  end_all();
}

// ---- launching ----

void NcclBackend::start(NcclJob& job) {
  if (job.plan == nullptr) {
    // The set is removed on all ranks, after the end of everything on it.
    if (!is_aborted_ && job.communicator->comm != nullptr) end_communicators(job.process_set);
    made_.erase(job.communicator);
    delete job.communicator;
    under_way_.fetch_sub(1);
    return;
  }
  Status status = is_given_up() ? given_up_status() : launch(job);
  if (status.ok()) {
    {
      std::lock_guard lock(finished_mutex_);
      for (Operation* operation : job.operations) operation->finished = job.finished;
    }
    if (job.launched) job.launched();
    in_flight_.push_back(std::move(job));
    return;
  }
  if (!is_given_up()) {
    fail_world({status.code(), fmt::format("{}: {}", describe(job), status.message()), status.origin()});
  }
  in_flight_.push_back(std::move(job));  // ended by the abort, which follows
}

Status NcclBackend::launch(NcclJob& job) {
  Communicator& communicator = *job.communicator;
  Gpu& device = *communicator.gpu;
  Gpu::Current current(device);
  if (communicator.comm == nullptr) {
    if (Status status = make(communicator); !status.ok()) return status;
  }
  CudaStream stream = device.stream(communicator.stream);
  const void* known = nullptr;
  for (const Operation* operation : job.operations) {
    auto* ready = static_cast<DeviceEvent*>(operation->ready.get());
    CudaEvent event = ready != nullptr ? ready->event : static_cast<CudaEvent>(operation->input.ready_event);
    if (event == nullptr || event == known) continue;
    if (Status status = device.wait(stream, event); !status.ok()) return status;
    known = event;
  }
  for (const DeviceEventRef& event : job.waits) {
    if (Status status = device.wait(stream, event->event); !status.ok()) return status;
  }
  // Kernels of two communicators must start in the same order on all ranks, so streams take turns.
  if (DeviceEventRef& last = last_[&device]; settings_.streams > 1 && last != nullptr) {
    if (Status status = device.wait(stream, last->event); !status.ok()) return status;
  }
  TimePoint deadline = limit_from(Clock::now(), settings_.operation_limit);
  NcclLaunch work(*libraries_, job, {.use_kernels = settings_.use_kernels},
                  [&](NcclResult result, const char* call) { return settle(communicator, result, call, deadline); });
  {
    std::unique_lock lock(nccl_mutex_);
    if (Status status = work.run(); !status.ok()) return status;
  }
  auto event = device.take_event();
  if (!event.ok()) return event.status();
  job.finished = std::move(*event);
  if (Status status = device.record(job.finished->event, stream); !status.ok()) return status;
  if (settings_.streams > 1) last_[&device] = job.finished;
  return {};
}

Status NcclBackend::make(Communicator& communicator) {
  NcclConfig config;
  TimePoint start = Clock::now();
  std::unique_lock lock(nccl_mutex_);
  NcclResult result = libraries_->nccl.comm_init(&communicator.comm, communicator.size, communicator.id,
                                                 communicator.position, &config);
  if (communicator.comm != nullptr) made_.insert(&communicator);
  Status status = settle(communicator, result, "ncclCommInitRankConfig", limit_from(start, settings_.init_limit));
  if (status.ok()) {
    log_debug("made a communicator of {} ranks for process set {} on GPU {} in {:.1f} ms", communicator.size,
              communicator.process_set, communicator.gpu->ordinal(), seconds_of(Clock::now() - start) * 1e3);
  }
  return status;
}

// Waits while the call goes on in the background. Until then there must be no other call, and nothing on its stream.
Status NcclBackend::settle(Communicator& communicator, NcclResult result, const char* call, TimePoint deadline) {
  const NcclApi& nccl = libraries_->nccl;
  TimePoint start = Clock::now();
  while (result == NcclResult::in_progress && communicator.comm != nullptr) {
    NcclResult state = NcclResult::success;
    if (NcclResult asked = nccl.comm_state(communicator.comm, &state); asked != NcclResult::success) state = asked;
    result = state;
    if (result != NcclResult::in_progress) break;
    if (is_given_up()) return given_up_status();
    if (Status failure = context_.failure(); !failure.ok()) return failure;
    if (is_over(deadline)) {
      return {Code::unknown, fmt::format("{} has not ended after {:.1f} s on rank {}: another rank of the process set "
                                         "does not take part",
                                         call, seconds_of(Clock::now() - start), context_.world.rank)};
    }
    nccl_mutex_.unlock();  // a call that concerns no communicator may come in between
    if (Clock::now() - start < kSpin) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    nccl_mutex_.lock();
  }
  if (is_given_up()) return given_up_status();
  if (result == NcclResult::success) return {};
  return {Code::unknown,
          fmt::format("{} failed on rank {}: {}", call, context_.world.rank, nccl.describe(result, communicator.comm))};
}

// ---- completion ----

bool NcclBackend::look_at_jobs() {
  bool happened = false;
  while (!in_flight_.empty() && !is_given_up() && !has_failed_) {
    NcclJob& job = in_flight_.front();
    CudaResult result = kCudaSuccess;
    {
      Gpu::Current current(*job.communicator->gpu);
      result = libraries_->cuda.event_query(job.finished->event);
    }
    if (result == kCudaNotReady) {
      TimePoint deadline = limit_from(job.since, settings_.operation_limit);
      if (is_over(deadline)) {
        fail_world({Code::unknown,
                    fmt::format("{} has not ended after {:.1f} s on rank {} (HOROVOD_COLLECTIVE_TIMEOUT_SECONDS)",
                                describe(job), seconds_of(Clock::now() - job.since), context_.world.rank)});
      }
      break;
    }
    if (result != kCudaSuccess) {
      Status status = job.communicator->gpu->check(result, "cuEventQuery");
      fail_world(
          {status.code(), fmt::format("{}: {} (rank {})", describe(job), status.message(), context_.world.rank)});
      break;
    }
    NcclJob ended = std::move(job);
    in_flight_.pop_front();
    finish(ended, {});
    happened = true;
  }
  if (in_flight_.empty() && happened) {
    std::lock_guard lock(open_mutex_);
    for (auto& [ordinal, device] : gpus_) {
      Gpu::Current current(*device);
      device->free_replaced();
    }
  }
  return happened;
}

// NCCL reports what happens after a launch here, and nowhere else.
void NcclBackend::look_for_errors() {
  if (is_given_up() || has_failed_) return;
  std::set<Communicator*> seen;
  for (const NcclJob& job : in_flight_) {
    Communicator& communicator = *job.communicator;
    if (communicator.comm == nullptr || !seen.insert(&communicator).second) continue;
    Gpu::Current current(*communicator.gpu);
    NcclResult state = NcclResult::success;
    NcclResult asked = libraries_->nccl.comm_state(communicator.comm, &state);
    if (asked != NcclResult::success) state = asked;
    if (state == NcclResult::success || state == NcclResult::in_progress) continue;
    return fail_world({Code::unknown, fmt::format("{} failed on rank {}: {}", describe(job), context_.world.rank,
                                                  libraries_->nccl.describe(state, communicator.comm))});
  }
}

void NcclBackend::finish(NcclJob& job, const Status& status) {
  {
    std::lock_guard lock(finished_mutex_);
    for (Operation* operation : job.operations) {
      operation->finished.reset();
      operation->ready.reset();
    }
  }
  if (!job.scratch.empty()) {
    Gpu::Current current(*job.communicator->gpu);
    for (CudaPointer memory : job.scratch) job.communicator->gpu->free(memory);
  }
  Done done = std::move(job.done);
  under_way_.fetch_sub(1);
  done(status);
}

// The engine learns of it, on all ranks, and gives up what is under way.
void NcclBackend::fail_world(const Status& status) {
  if (std::exchange(has_failed_, true)) return;
  log_error("{}", status.message());
  context_.fail({Code::peer_lost, std::string(status.message()), status.origin()});
  give_up({Code::peer_lost, std::string(status.message()), status.origin()});
}

std::string NcclBackend::describe(const NcclJob& job) const {
  const Request& first = job.plan->first();
  std::string more = job.operations.size() > 1 ? fmt::format(" and {} more", job.operations.size() - 1) : "";
  return fmt::format("{} of {}{} on GPU {}", name_of(first.kind), first.name, more,
                     job.communicator->gpu != nullptr ? job.communicator->gpu->ordinal() : -1);
}

// ---- ending ----

// All communicators in one group: an abort waits for kernels to leave, and those of another communicator may be stuck,
// too. It runs on a thread of its own, which is left behind if it does not return.
void NcclBackend::abort_all() {
  is_aborted_ = true;
  bool has_returned = true;
  if (!made_.empty()) {
    struct Aborting {
      NcclApi nccl;
      std::vector<Communicator> communicators;
      std::promise<void> done;
    };
    auto aborting = std::make_shared<Aborting>();
    aborting->nccl = libraries_->nccl;
    for (Communicator* communicator : made_) {
      aborting->communicators.push_back(*communicator);
      communicator->comm = nullptr;
    }
    std::future<void> done = aborting->done.get_future();
    std::thread thread([aborting] {
      aborting->nccl.group_start();
      for (const Communicator& communicator : aborting->communicators) {
        Gpu::Current current(*communicator.gpu);
        aborting->nccl.comm_abort(communicator.comm);
      }
      aborting->nccl.group_end();
      aborting->done.set_value();
    });
    has_returned = done.wait_for(kAbortLimit) == std::future_status::ready;
    if (has_returned) {
      thread.join();
    } else {
      thread.detach();
    }
    made_.clear();
  }
  Status status = given_up_status();
  if (!has_returned) {
    std::string text = fmt::format(
        "{}; ncclCommAbort has not returned after {:.0f} s: this process cannot use its GPU "
        "again",
        status.message(), seconds_of(kAbortLimit));
    log_error("{}", text);
    status = {status.code(), text, status.origin()};
  }
  while (!in_flight_.empty()) {
    NcclJob job = std::move(in_flight_.front());
    in_flight_.pop_front();
    finish(job, status);
  }
}

void NcclBackend::end_communicators(int32_t process_set) {
  while (std::any_of(in_flight_.begin(), in_flight_.end(),
                     [&](const NcclJob& job) { return job.process_set == process_set; })) {
    look_at_jobs();
    look_for_errors();
    if (is_given_up() || has_failed_) return;
    std::this_thread::yield();
  }
  for (Communicator* communicator : made_) {
    if (communicator->process_set != process_set || communicator->comm == nullptr) continue;
    Gpu::Current current(*communicator->gpu);
    std::lock_guard lock(nccl_mutex_);
    NcclResult result = libraries_->nccl.comm_finalize(communicator->comm);
    Status status = settle(*communicator, result, "ncclCommFinalize", Clock::now() + kFarewell);
    if (status.ok()) {
      libraries_->nccl.comm_destroy(communicator->comm);
    } else {
      libraries_->nccl.comm_abort(communicator->comm);
    }
    communicator->comm = nullptr;
  }
}

void NcclBackend::end_all() {
  last_.clear();
  if (is_aborted_) return;
  std::set<int32_t> sets;
  for (const Communicator* communicator : made_) sets.insert(communicator->process_set);
  for (int32_t set : sets) end_communicators(set);
  made_.clear();
}

}  // namespace hvd
