// The GPU thread of the NCCL backend: launches, completion, deadlines, and the abort. See nccl_backend.h.
#include <fmt/core.h>
#include <pthread.h>

#include <algorithm>
#include <future>
#include <set>
#include <utility>

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
    std::unique_ptr<Communicator> ended(job.communicator);
    if (!is_aborted_ && ended->comm != nullptr) {
      Status status = end_communicators(job.process_set);
      if (!status.ok() && !is_given_up()) fail_world(status);
    }
    if (ended->comm != nullptr) {
      left_.push_back(
          std::move(ended));  // the world has failed meanwhile: the abort takes it, and jobs use it until then
    } else {
      std::erase(made_, ended.get());
    }
    under_way_.fetch_sub(1);
    return;
  }
  if (is_aborted_) return finish(job, given_up_status());  // it was handed over during the abort
  Status status = is_given_up() ? given_up_status() : launch(job);
  if (status.ok()) {
    {
      std::lock_guard lock(finished_mutex_);
      if (job.part != JobPart::to_host) {
        for (Operation* operation : job.operations) operation->finished = job.finished;
      }
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
    job.init_begin = Clock::now();
    if (Status status = make(communicator); !status.ok()) return status;
    job.init_end = Clock::now();
  }
  bool needs_parts = job.part == JobPart::to_host || is_torus(communicator, settings_.use_torus);
  if (needs_parts && communicator.local == nullptr) {
    if (Status status = split(communicator); !status.ok()) return status;
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
  NcclLaunch work(*libraries_, job, {.use_kernels = settings_.use_kernels, .use_torus = settings_.use_torus},
                  [&](NcclComm comm, NcclResult result, const char* call) {
                    return settle(communicator, comm, result, call, deadline);
                  });
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
  if (communicator.comm != nullptr) made_.push_back(&communicator);
  Status status = settle(communicator, communicator.comm, result, "ncclCommInitRankConfig",
                         limit_from(start, settings_.init_limit));
  if (status.ok()) {
    log_debug("made a communicator of {} ranks for process set {} on GPU {} in {:.1f} ms", communicator.size,
              communicator.process_set, communicator.gpu->ordinal(), seconds_of(Clock::now() - start) * 1e3);
  }
  return status;
}

// The members of this host, and those with the same place on each host.
Status NcclBackend::split(Communicator& communicator) {
  const HostLayout& hosts = communicator.hosts;
  if (Status status = split_off(communicator, hosts.host, hosts.position, communicator.local); !status.ok()) {
    return status;
  }
  return split_off(communicator, hosts.position, hosts.host, communicator.cross);
}

Status NcclBackend::split_off(Communicator& communicator, int32_t color, int32_t key, NcclComm& part) {
  NcclConfig config;
  TimePoint deadline = limit_from(Clock::now(), settings_.init_limit);
  std::unique_lock lock(nccl_mutex_);
  NcclResult result = libraries_->nccl.comm_split(communicator.comm, color, key, &part, &config);
  if (Status status = settle(communicator, communicator.comm, result, "ncclCommSplit", deadline); !status.ok())
    return status;
  return settle(communicator, part, part == nullptr ? NcclResult::internal_error : NcclResult::in_progress,
                "ncclCommSplit", deadline);
}

// Waits while the call goes on in the background. Until then there must be no other call, and nothing on its stream.
Status NcclBackend::settle(const Communicator& communicator, NcclComm comm, NcclResult result, const char* call,
                           TimePoint deadline) {
  const NcclApi& nccl = libraries_->nccl;
  TimePoint start = Clock::now();
  bool has_warned = false;
  while (result == NcclResult::in_progress && comm != nullptr) {
    NcclResult state = NcclResult::success;
    if (NcclResult asked = nccl.comm_state(comm, &state); asked != NcclResult::success) state = asked;
    result = state;
    if (result != NcclResult::in_progress) break;
    if (is_given_up()) return given_up_status();
    if (Status failure = context_.failure(); !failure.ok()) return failure;
    if (!has_warned && settings_.warn_after > Duration{} && Clock::now() - start >= settings_.warn_after) {
      has_warned = true;
      log_warning("{} has been in progress for {:.1f} s on rank {}: another rank does not take part", call,
                  seconds_of(Clock::now() - start), context_.world.rank);
    }
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
  return {Code::unknown, fmt::format("{} failed on rank {}: {}", call, context_.world.rank,
                                     describe_error(*communicator.gpu, comm, result))};
}

// NCCL only says that CUDA failed. If that has ended the context, any call tells so, and is remembered (lost_context).
std::string NcclBackend::describe_error(const Gpu& gpu, NcclComm comm, NcclResult result) const {
  std::string text = libraries_->nccl.describe(result, comm);
  if (result != NcclResult::unhandled_cuda_error) return text;
  size_t available = 0, total = 0;
  Status status = gpu.check(libraries_->cuda.memory_info(&available, &total), "cuMemGetInfo");
  return status.ok() ? text : fmt::format("{}; {}", text, status.message());
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
      warn_of_slow(job);
      if (settings_.operation_limit > Duration{} && !job.has_data) note_data(job);
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
    record_activities(ended);
    finish(ended, {});
    happened = true;
  }
  if (in_flight_.empty() && happened) free_replaced();
  return happened;
}

// All users of a buffer that was replaced were handed over before it was.
void NcclBackend::free_replaced() {
  std::lock_guard open(open_mutex_);
  for (auto& [ordinal, device] : gpus_) {
    Gpu::Replaced replaced;
    {
      std::lock_guard lock(mutex_);
      if (!handed_over_.empty()) return;
      replaced = device->take_replaced();
    }
    Gpu::Current current(*device);
    device->free_replaced(replaced);
  }
}

// The device tells how long each activity took; the last one has ended a moment ago.
void NcclBackend::record_activities(NcclJob& job) const {
  if (job.marks.empty()) return;
  const Gpu& device = *job.communicator->gpu;
  Gpu::Current current(device);
  std::vector<TimedActivity> activities;
  TimePoint now = Clock::now(), from = job.handed_over_at;
  if (job.init_end > job.init_begin) {
    activities.push_back({"INIT_NCCL", job.init_begin, job.init_end});
    from = job.init_end;
  }
  const DeviceEvent& first = *job.marks.front().event;
  auto whole = device.elapsed(first, *job.marks.back().event);
  if (!whole.ok()) return;
  TimePoint start = std::max(from, now - *whole);
  activities.push_back({"QUEUE", from, start});
  TimePoint begin = start;
  for (size_t i = 1; i < job.marks.size(); i++) {
    auto time = device.elapsed(first, *job.marks[i].event);
    if (!time.ok()) return;
    TimePoint end = std::clamp(start + *time, begin, now);
    activities.push_back({job.marks[i].activity, begin, end});
    begin = end;
  }
  for (Operation* operation : job.operations) {
    auto all = activities;
    if (operation->activities != nullptr)
      all.insert(all.begin(), operation->activities->begin(), operation->activities->end());
    operation->activities = std::make_shared<const std::vector<TimedActivity>>(std::move(all));
  }
}

// An operation may take as long as it does until the data of this rank are there; then its limit begins.
void NcclBackend::note_data(NcclJob& job) const {
  Gpu::Current current(*job.communicator->gpu);
  job.has_data = missing_data(job) == nullptr;
  if (!job.has_data) job.since = Clock::now();
}

// The first operation whose data have not been computed yet.
const Operation* NcclBackend::missing_data(const NcclJob& job) const {
  const void* known = nullptr;
  for (const Operation* operation : job.operations) {
    auto* ready = static_cast<DeviceEvent*>(operation->ready.get());
    if (ready == nullptr || ready == known) continue;
    if (libraries_->cuda.event_query(ready->event) == kCudaNotReady) return operation;
    known = ready;
  }
  return nullptr;
}

// What it waits for can be told from the device: the data, or the other ranks.
void NcclBackend::warn_of_slow(NcclJob& job) {
  if (job.is_reported || settings_.warn_after <= Duration{} ||
      Clock::now() - job.handed_over_at < settings_.warn_after) {
    return;
  }
  job.is_reported = true;
  Gpu::Current current(*job.communicator->gpu);
  std::string waits_for = "NCCL, in which another rank does not take part or does not get on";
  if (const Operation* operation = missing_data(job); operation != nullptr) {
    waits_for = fmt::format("the stream that computes {}, which has not come so far", operation->request.name);
  }
  log_warning("{} has not ended after {:.1f} s on rank {}: its GPU waits for {}", describe(job),
              seconds_of(Clock::now() - job.handed_over_at), context_.world.rank, waits_for);
}

// NCCL reports what happens after a launch here, and nowhere else.
void NcclBackend::look_for_errors() {
  if (is_given_up() || has_failed_) return;
  std::set<Communicator*> seen;
  for (const NcclJob& job : in_flight_) {
    Communicator& communicator = *job.communicator;
    if (communicator.comm == nullptr || !seen.insert(&communicator).second) continue;
    Gpu::Current current(*communicator.gpu);
    for (NcclComm comm : communicator.all()) {
      if (comm == nullptr) continue;
      NcclResult state = NcclResult::success;
      NcclResult asked = libraries_->nccl.comm_state(comm, &state);
      if (asked != NcclResult::success) state = asked;
      if (state == NcclResult::success || state == NcclResult::in_progress) continue;
      return fail_world({Code::unknown, fmt::format("{} failed on rank {}: {}", describe(job), context_.world.rank,
                                                    describe_error(*communicator.gpu, comm, state))});
    }
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
  if (!job.scratch.empty() && !is_stuck_) {
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
      communicator->comm = communicator->local = communicator->cross = nullptr;
    }
    std::future<void> done = aborting->done.get_future();
    std::thread thread([aborting] {
      aborting->nccl.group_start();
      for (const Communicator& communicator : aborting->communicators) {
        Gpu::Current current(*communicator.gpu);
        for (NcclComm comm : communicator.all()) {
          if (comm != nullptr) aborting->nccl.comm_abort(comm);
        }
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
  const char* stuck = !has_returned ? "ncclCommAbort has not returned" : nullptr;
  if (has_returned && !wait_for_streams(Clock::now() + kAbortLimit)) stuck = "the work on its streams has not ended";
  if (stuck != nullptr) {
    std::string text = fmt::format("{}; {} after {:.0f} s: this process cannot use its GPU again", status.message(),
                                   stuck, seconds_of(kAbortLimit));
    log_error("{}", text);
    is_stuck_ = true;
    lose_context("ncclCommAbort has not returned, so communicators of an earlier world still run on the GPU");
    status = {status.code(), text, status.origin()};
  }
  while (!in_flight_.empty()) {
    NcclJob job = std::move(in_flight_.front());
    in_flight_.pop_front();
    finish(job, status);
  }
}

// What packs and unpacks tensors around an aborted operation is still on the streams, and uses the callers' memory:
// they may free it as soon as they have the error. False: it has not ended in time.
bool NcclBackend::wait_for_streams(TimePoint deadline) {
  std::vector<Gpu*> devices;
  {
    std::lock_guard lock(open_mutex_);
    for (auto& [ordinal, device] : gpus_) devices.push_back(device.get());
  }
  for (Gpu* device : devices) {
    Gpu::Current current(*device);
    for (int i = 0; i < settings_.streams; i++) {
      auto event = device->take_event();
      if (!event.ok() || !device->record((*event)->event, device->stream(i)).ok()) continue;  // the context is lost
      while (libraries_->cuda.event_query((*event)->event) == kCudaNotReady) {
        if (is_over(deadline)) return false;
        std::this_thread::sleep_for(std::chrono::microseconds(50));
      }
    }
  }
  return true;
}

// Finalizing waits for the other members, so all ranks do it in the same order. Not ok: some are left, for an abort.
Status NcclBackend::end_communicators(int32_t process_set) {
  while (std::any_of(in_flight_.begin(), in_flight_.end(),
                     [&](const NcclJob& job) { return job.process_set == process_set; })) {
    look_at_jobs();
    look_for_errors();
    if (is_given_up() || has_failed_) return given_up_status();
    std::this_thread::yield();
  }
  for (Communicator* communicator : made_) {
    if (communicator->process_set != process_set || communicator->comm == nullptr) continue;
    Gpu::Current current(*communicator->gpu);
    std::lock_guard lock(nccl_mutex_);
    for (NcclComm* comm : {&communicator->cross, &communicator->local, &communicator->comm}) {
      if (*comm == nullptr) continue;
      NcclResult result = libraries_->nccl.comm_finalize(*comm);
      Status status = settle(*communicator, *comm, result, "ncclCommFinalize", Clock::now() + kFarewell);
      if (!status.ok()) return status;
      libraries_->nccl.comm_destroy(std::exchange(*comm, nullptr));
    }
  }
  return {};
}

void NcclBackend::end_all() {
  last_.clear();
  if (is_aborted_) return;
  std::set<int32_t> sets;
  for (const Communicator* communicator : made_) sets.insert(communicator->process_set);
  for (int32_t set : sets) {
    if (!end_communicators(set).ok()) return abort_all();
  }
  made_.clear();
}

}  // namespace hvd
