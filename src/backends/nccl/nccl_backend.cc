#include "backends/nccl/nccl_backend.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>

#include "backends/device_outputs.h"
#include "base/log.h"

namespace hvd {
namespace {

// Events that one call of hvd_submit or hvd_submit_many has recorded in this thread.
struct CallEvents {
  Gpu* gpu = nullptr;
  void* stream = nullptr;
  DeviceEventRef event;
};
thread_local std::vector<CallEvents> call_events;

constexpr Duration kLookForFailure = std::chrono::milliseconds(5);
constexpr size_t kSmallestBuffer = size_t{1} << 20;

}  // namespace

NcclBackend::NcclBackend(BackendContext context, LibrarySearch libraries, const NcclSettings& settings)
    : context_(std::move(context)), search_(std::move(libraries)), settings_(settings) {
  FreeBytes::free_on_device = [](std::byte* memory) { DeviceOutputs::instance().free(memory); };
}

std::string_view NcclBackend::activity(Kind kind) const {
  switch (kind) {
    case Kind::allreduce: return "NCCL_ALLREDUCE";
    case Kind::allgather: return "NCCL_ALLGATHER";
    case Kind::broadcast: return "NCCL_BCAST";
    case Kind::alltoall: return "NCCL_ALLTOALL";
    case Kind::reducescatter: return "NCCL_REDUCESCATTER";
    case Kind::barrier:
    case Kind::join:
    case Kind::add_process_set:
    case Kind::remove_process_set:
    case Kind::reduce:
    case Kind::gather:
    case Kind::scatter:
    case Kind::transfer:
    case Kind::probe:
    case Kind::form_process_set:
    case Kind::leave_process_set: break;
  }
  return "NONE";
}

bool NcclBackend::accepts(const Plan& plan) const {
  const Request& request = plan.first();
  return request.device != kHost && can_use_nccl(request);
}

// ---- opening ----

// Loads the libraries and starts the driver, once. Guarded by open_mutex_.
Status NcclBackend::open() {
  if (libraries_ != nullptr) return {};
  if (!open_error_.ok()) return open_error_;
  auto opened = open_libraries(search_);
  if (!opened.ok()) return open_error_ = opened.status();
  CudaResult result = opened->cuda.init(0);
  if (result != kCudaSuccess) {
    return open_error_ = Status(Code::unknown, fmt::format("cuInit failed: {}", opened->cuda.describe(result)));
  }
  libraries_ = std::make_unique<GpuLibraries>(*opened);
  log_info("GPU tensors are reduced by NCCL {} ({})", nccl_version_text(libraries_->nccl_version), search_.nccl);
  thread_ = std::jthread([this](const std::stop_token& stop) { work(stop); });
  return {};
}

Result<Gpu*> NcclBackend::gpu(Device ordinal) {
  std::lock_guard lock(open_mutex_);
  if (Status status = open(); !status.ok()) return status;
  auto found = gpus_.find(ordinal);
  if (found != gpus_.end()) return found->second.get();
  // Not tried again: operations that were submitted before have no event of when their tensors are ready.
  if (auto failed = gpu_errors_.find(ordinal); failed != gpu_errors_.end()) return failed->second;
  auto opened = Gpu::open(libraries_->cuda, ordinal, settings_.streams);
  if (!opened.ok()) return gpu_errors_.emplace(ordinal, opened.status()).first->second;
  return gpus_.emplace(ordinal, std::move(*opened)).first->second.get();
}

// ---- submitting ----

void NcclBackend::begin_call() { call_events.clear(); }

// A GPU that cannot be opened is reported by the plan, on all ranks. Here it would leave them waiting for this one.
Status NcclBackend::on_submit(Operation& operation) {
  if (operation.request.device == kHost || !moves_data(operation.request.kind)) return {};
  if (!can_use_nccl(operation.request)) {
    return {Code::invalid_argument,
            fmt::format("{}: NCCL has no {} of {}; copy the tensor to host memory first", operation.request.name,
                        name_of(operation.request.kind), name_of(operation.request.dtype))};
  }
  if (operation.input.ready_event != nullptr) return {};
  auto found = gpu(operation.request.device);
  if (!found.ok()) return {};
  Gpu& device = **found;
  void* stream = operation.input.stream;
  for (const CallEvents& known : call_events) {
    if (known.gpu == &device && known.stream == stream) {
      operation.ready = known.event;
      return {};
    }
  }
  Gpu::Current current(device);
  int capture = 0;
  auto* cuda_stream = static_cast<CudaStream>(stream);
  if (libraries_->cuda.stream_is_capturing(cuda_stream, &capture) == kCudaSuccess && capture != 0) {
    return {Code::invalid_argument,
            fmt::format("{}: the stream is being captured into a graph; Horovod's operations cannot be part of one",
                        operation.request.name)};
  }
  auto event = device.take_event();
  if (!event.ok()) return event.status();
  if (Status status = device.record((*event)->event, cuda_stream); !status.ok()) return status;
  operation.ready = *event;
  call_events.push_back({&device, stream, std::move(*event)});
  return {};
}

Status NcclBackend::order_stream(const Operation& operation, void* stream) {
  std::shared_ptr<void> kept;
  {
    std::lock_guard lock(finished_mutex_);
    kept = operation.finished;
  }
  if (kept == nullptr) return {};  // it is done
  auto* event = static_cast<DeviceEvent*>(kept.get());
  Gpu::Current current(*event->gpu);
  return event->gpu->wait(static_cast<CudaStream>(stream), event->event);
}

Result<std::byte*> NcclBackend::allocate(Device device, size_t bytes) {
  auto found = gpu(device);
  if (!found.ok()) return found.status();
  Gpu::Current current(**found);
  auto memory = (*found)->allocate(bytes);
  if (!memory.ok()) return memory.status();
  auto* data = reinterpret_cast<std::byte*>(*memory);
  std::shared_ptr<Gpu> owner;
  {
    std::lock_guard lock(open_mutex_);
    owner = gpus_.at(device);
  }
  DeviceOutputs::instance().add(data, this, [owner = std::move(owner), address = *memory] {
    Gpu::Current made_current(*owner);
    owner->free(address);
  });
  return data;
}

// ---- preparing a plan ----

// A rank that has joined is not in the map. It keeps to the device that it introduced itself with.
Device NcclBackend::own_device(const Plan& plan) const {
  Device listed = (*plan.places.map)[static_cast<size_t>(context_.world.rank)];
  if (listed != kHost) return listed;
  if (join_device_ != kHost) return join_device_;
  return last_device_ != kHost ? last_device_ : context_.world.local_rank;
}

Result<Communicator*> NcclBackend::communicator_for(const Plan& plan) {
  int32_t set = plan.first().process_set;
  int stream = static_cast<int>(turns_[set]++ % static_cast<uint64_t>(settings_.streams));
  Key key{set, plan.places.number, stream};
  auto found = communicators_.find(key);
  if (found != communicators_.end()) return found->second.get();
  auto communicator = std::make_unique<Communicator>();
  communicator->process_set = set;
  communicator->map_number = plan.places.number;
  communicator->stream = stream;
  if (Status status = introduce(*communicator, own_device(plan)); !status.ok()) return status;
  return communicators_.emplace(key, std::move(communicator)).first->second.get();
}

Status NcclBackend::introduce(Communicator& communicator, Device device) {
  std::vector<int32_t> members = context_.members(communicator.process_set);
  Introduction mine{.rank = context_.world.rank};
  auto found = gpu(device);
  Status own = found.ok() ? Status() : found.status();
  if (own.ok()) {
    communicator.gpu = *found;
    communicator.size = static_cast<int32_t>(members.size());
    communicator.hosts = host_layout(members, context_.world.host_of, context_.world.rank);
    communicator.position =
        static_cast<int32_t>(std::find(members.begin(), members.end(), context_.world.rank) - members.begin());
    mine.version = libraries_->nccl_version;
    mine.is_hip = libraries_->cuda.is_hip ? 1 : 0;
    set_text(mine.pci_id, communicator.gpu->pci_id());
    if (communicator.position == 0) {
      Gpu::Current current(*communicator.gpu);
      std::lock_guard lock(nccl_mutex_);
      NcclResult result = libraries_->nccl.unique_id(&mine.id);
      if (result != NcclResult::success) own = {Code::unknown, libraries_->nccl.describe(result, nullptr)};
    }
  }
  set_text(mine.host, context_.world.host);
  mine.is_ready = own.ok() ? 1 : 0;
  if (!own.ok()) set_text(mine.text, std::string(own.message()));
  std::vector<Introduction> all(members.size());
  Status status = context_.exchange(communicator.process_set, std::as_bytes(std::span(&mine, 1)),
                                    reinterpret_cast<std::byte*>(all.data()));
  if (!status.ok()) return status;
  if (status = judge(all); !status.ok()) return status;
  communicator.id = all.front().id;
  return {};
}

// All members reserve the same number of bytes: it decides which tensors are fused. They see the same plans, so they
// come here together.
Status NcclBackend::reserve(Communicator& communicator, size_t wanted) {
  if (wanted <= communicator.fusion_bytes || communicator.is_limited) return {};
  size_t bytes = std::max(std::bit_ceil(wanted), kSmallestBuffer);
  if (wanted <= settings_.fusion_threshold) bytes = std::min(bytes, std::max(settings_.fusion_threshold, wanted));
  uint64_t mine = 0;
  {
    Gpu::Current current(*communicator.gpu);
    mine = communicator.gpu->reserve(communicator.stream, bytes);
  }
  std::vector<uint64_t> all(static_cast<size_t>(communicator.size));
  Status status = context_.exchange(communicator.process_set, std::as_bytes(std::span(&mine, 1)),
                                    reinterpret_cast<std::byte*>(all.data()));
  if (!status.ok()) return status;
  uint64_t least = *std::min_element(all.begin(), all.end());
  communicator.is_limited = least < wanted;  // the same on all ranks, unlike `bytes`
  communicator.fusion_bytes = std::max<size_t>(communicator.fusion_bytes, least);
  return {};
}

void NcclBackend::run_on_device(const Plan& plan, std::span<Operation* const> operations,
                                std::function<void()> launched, Done done) {
  if (is_given_up()) return done(given_up_status());
  auto communicator = communicator_for(plan);
  if (!communicator.ok()) return done(communicator.status());
  Communicator& chosen = **communicator;
  size_t wanted = wanted_buffer(plan, operations, chosen, settings_.use_torus);
  if (Status status = reserve(chosen, wanted); !status.ok()) return done(status);
  last_device_ = chosen.gpu->ordinal();
  NcclJob job{.plan = &plan,
              .process_set = chosen.process_set,
              .operations = {operations.begin(), operations.end()},
              .communicator = &chosen,
              .buffer = chosen.gpu->buffer(chosen.stream),
              .buffer_bytes = chosen.fusion_bytes,
              .launched = std::move(launched),
              .done = std::move(done),
              .is_recorded = context_.is_recording && context_.is_recording()};
  // The allocator of the caller gave out memory that earlier work of the default stream may still use.
  bool has_new_outputs = std::any_of(operations.begin(), operations.end(),
                                     [](const Operation* operation) { return operation->allocate != nullptr; });
  if (has_new_outputs) {
    Gpu::Current current(*chosen.gpu);
    auto event = chosen.gpu->take_event();
    if (event.ok() && chosen.gpu->record((*event)->event, nullptr).ok()) job.waits.push_back(std::move(*event));
  }
  const Request& first = plan.first();
  if (first.reduce_op == ReduceOp::adasum && chosen.hosts.hosts > 1 && elements_of(first.shape) > 0) {
    if (Status status = adasum_between_hosts(plan, job); !status.ok()) return job.done(status);
    job.part = JobPart::from_host;
    job.on_host = chosen.gpu->reserve_on_host(bytes_of(first));
    job.waits.clear();
  }
  hand_over(std::move(job));
}

void NcclBackend::hand_over(NcclJob job) {
  job.handed_over_at = job.since = Clock::now();
  under_way_.fetch_add(1);
  {
    std::lock_guard lock(mutex_);
    handed_over_.push_back(std::move(job));
  }
  changed_.notify_one();
}

// Averages inside the hosts on the GPU, and leaves the combination of the hosts' averages in host memory. There all
// members of a host bring the same vector, so Adasum over all members is Adasum between the hosts. Like every operation
// on host memory it keeps the thread that drives, which here waits for the GPU first.
Status NcclBackend::adasum_between_hosts(const Plan& plan, const NcclJob& job) {
  const Request& first = plan.first();
  size_t bytes = bytes_of(first);
  std::byte* on_host = nullptr;
  {
    Gpu::Current current(*job.communicator->gpu);
    on_host = job.communicator->gpu->reserve_on_host(bytes);
  }
  uint8_t has_memory = on_host != nullptr ? 1 : 0;
  std::vector<uint8_t> all(static_cast<size_t>(job.communicator->size));
  Status status = context_.exchange(first.process_set, std::as_bytes(std::span(&has_memory, 1)),
                                    reinterpret_cast<std::byte*>(all.data()));
  if (!status.ok()) return status;
  if (std::find(all.begin(), all.end(), 0) != all.end()) {
    return {Code::unknown,
            fmt::format("Adasum of {}: a rank has no {} of pinned host memory left", first.name, bytes_text(bytes))};
  }
  struct {
    std::mutex mutex;
    std::condition_variable changed;
    bool is_over = false;  // guarded by the mutex
    Status status;
  } end;
  NcclJob out = job;
  out.part = JobPart::to_host;
  out.on_host = on_host;
  out.launched = nullptr;
  out.done = [&end](const Status& ended) {
    std::lock_guard lock(end.mutex);
    end.status = ended;
    end.is_over = true;
    end.changed.notify_one();
  };
  hand_over(std::move(out));
  context_.wake_others();
  std::unique_lock lock(end.mutex);
  while (!end.changed.wait_for(lock, kLookForFailure, [&] { return end.is_over; })) {
    if (Status failure = context_.failure(); !failure.ok()) give_up(failure);  // the GPU thread ends the job
  }
  if (!end.status.ok()) return end.status;
  return context_.adasum(first.process_set, on_host, static_cast<size_t>(elements_of(first.shape)), first.dtype,
                         first.prescale, first.postscale);
}

void NcclBackend::forget(int32_t process_set) {
  turns_.erase(process_set);
  bool has_some = false;
  for (const auto& [key, communicator] : communicators_) has_some |= std::get<0>(key) == process_set;
  if (!has_some) return;
  NcclJob job{.process_set = process_set};
  for (auto it = communicators_.begin(); it != communicators_.end();) {
    if (std::get<0>(it->first) != process_set) {
      ++it;
      continue;
    }
    Communicator* ended = it->second.release();  // the GPU thread deletes it
    it = communicators_.erase(it);
    NcclJob each{.process_set = process_set, .communicator = ended};
    under_way_.fetch_add(1);
    std::lock_guard lock(mutex_);
    handed_over_.push_back(std::move(each));
  }
  changed_.notify_one();
}

void NcclBackend::give_up(const Status& status) {
  {
    std::lock_guard lock(mutex_);
    if (given_up_) return;
    given_up_status_ = status;
    given_up_.store(true, std::memory_order_release);
  }
  changed_.notify_one();
}

Status NcclBackend::given_up_status() const {
  std::lock_guard lock(mutex_);
  return given_up_status_;
}

NcclBackend::~NcclBackend() {
  if (thread_.joinable()) {
    thread_.request_stop();
    changed_.notify_all();
    thread_.join();
  }
  if (is_stuck_) {
    // Whatever frees would wait for the kernels of the abort, for ever. The process cannot use its GPU again.
    DeviceOutputs::instance().forget_all_of(this);
    for (auto& [ordinal, device] : gpus_) new std::shared_ptr<Gpu>(std::move(device));
    (void)libraries_.release();
    return;
  }
  DeviceOutputs::instance().free_all_of(this);
}

}  // namespace hvd
