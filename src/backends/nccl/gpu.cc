#include "backends/nccl/gpu.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "backends/nccl/kernels_text.h"
#include "base/log.h"

namespace hvd {
namespace {

constexpr unsigned kThreads = 256;
constexpr uint64_t kPerBlock = 2048;  // elements
constexpr unsigned kMostBlocks = 256;
constexpr size_t kLeastBuffer = size_t{1} << 20;

struct KernelName {
  DType dtype;
  const char* name;
};
constexpr std::array kScaleKernels{
    KernelName{DType::u8, "hvd_scale_u8"},   KernelName{DType::i8, "hvd_scale_i8"},
    KernelName{DType::i32, "hvd_scale_i32"}, KernelName{DType::i64, "hvd_scale_i64"},
    KernelName{DType::f16, "hvd_scale_f16"}, KernelName{DType::bf16, "hvd_scale_bf16"},
    KernelName{DType::f32, "hvd_scale_f32"}, KernelName{DType::f64, "hvd_scale_f64"},
};

struct Lost {
  std::mutex mutex;
  std::string text;
};
Lost& lost() {
  static Lost* instance = new Lost;
  return *instance;
}

}  // namespace

std::string bytes_text(size_t bytes) {
  if (bytes < (size_t{1} << 20)) return fmt::format("{} bytes", bytes);
  return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
}

std::string lost_context() {
  std::lock_guard lock(lost().mutex);
  return lost().text;
}

void lose_context(const std::string& text) {
  std::lock_guard lock(lost().mutex);
  if (lost().text.empty()) lost().text = text;
}

Gpu::Current::Current(const Gpu& gpu) : cuda_(gpu.cuda_) {
  if (!cuda_.is_hip) {
    status_ = cuda_.context_push(gpu.context_);
    return;
  }
  status_ = cuda_.device_current(&before_);
  if (status_ == kCudaSuccess && before_ != gpu.ordinal_) status_ = cuda_.device_set(gpu.ordinal_);
}

Gpu::Current::~Current() {
  if (status_ != kCudaSuccess) return;
  CudaContext ignored = nullptr;
  if (!cuda_.is_hip) {
    cuda_.context_pop(&ignored);
  } else {
    cuda_.device_set(before_);
  }
}

Status Gpu::check(CudaResult result, const char* call) const {
  if (result == kCudaSuccess) return {};
  std::string text = fmt::format("{} failed on GPU {}: {}", call, ordinal_, cuda_.describe(result));
  if (is_sticky(result)) {
    text += "; the GPU context of this process is lost, only a new process can use this GPU again";
    lose_context(text);
  }
  return {Code::unknown, text};
}

Result<std::shared_ptr<Gpu>> Gpu::open(const CudaApi& cuda, int ordinal, int streams) {
  std::shared_ptr<Gpu> gpu(new Gpu(cuda, ordinal));
  if (Status status = gpu->start(streams); !status.ok()) return status;
  return gpu;
}

Status Gpu::start(int streams) {
  CudaDevice device = -1;
  if (Status status = check(cuda_.device_get(&device, ordinal_), "cuDeviceGet"); !status.ok()) return status;
  std::array<char, 64> id{};
  if (Status status = check(cuda_.device_pci_id(id.data(), static_cast<int>(id.size()), device), "cuDeviceGetPCIBusId");
      !status.ok())
    return status;
  pci_id_ = id.data();
  if (!cuda_.is_hip) {
    Status status = check(cuda_.context_retain(&context_, device), "cuDevicePrimaryCtxRetain");
    if (!status.ok()) return status;
  }
  device_ = device;
  Current current(*this);
  for (int i = 0; i < streams; i++) {
    CudaStream stream = nullptr;
    if (Status status = check(cuda_.stream_create(&stream, kStreamNonBlocking, 0), "cuStreamCreateWithPriority");
        !status.ok())
      return status;
    streams_.push_back(stream);
  }
  buffers_.resize(streams_.size());
  load_kernels();
  return {};
}

void Gpu::load_kernels() {
  scale_.resize(static_cast<size_t>(kLastDType) + 1);
  if (cuda_.module_load == nullptr) {
    log_debug("GPU {}: there are no kernels for it; tensors are copied one by one, and scaled on the host", ordinal_);
    return;
  }
  CudaModule module = nullptr;
  CudaResult result = cuda_.module_load(&module, kKernelsText, 0, nullptr, nullptr);
  if (result == kCudaSuccess) result = cuda_.module_function(&copy_, module, "hvd_copy");
  for (const KernelName& kernel : kScaleKernels) {
    if (result != kCudaSuccess) break;
    result = cuda_.module_function(&scale_[static_cast<size_t>(kernel.dtype)], module, kernel.name);
  }
  if (result == kCudaSuccess) {
    module_ = module;
    return;
  }
  if (module != nullptr) cuda_.module_unload(module);
  log_warning("GPU {}: the kernels cannot be used ({}); tensors are copied one by one, and scaled on the host",
              ordinal_, cuda_.describe(result));
}

Gpu::~Gpu() {
  if (device_ < 0) return;
  {
    Current current(*this);
    for (CudaStream stream : streams_) cuda_.stream_destroy(stream);
    for (EventPool* pool : {events_.get(), timed_events_.get()}) {
      std::lock_guard lock(pool->mutex);
      pool->is_closed = true;
      for (const std::unique_ptr<DeviceEvent>& event : pool->all) cuda_.event_destroy(event->event);
    }
    for (const Buffer& buffer : buffers_) free(buffer.memory);
    free_replaced(take_replaced());
    if (on_host_ != nullptr) cuda_.host_free(on_host_);
    if (module_ != nullptr) cuda_.module_unload(module_);
  }
  if (!cuda_.is_hip) cuda_.context_release(device_);
}

// ---- events ----

Result<DeviceEventRef> Gpu::take_event(bool timed) {
  const std::shared_ptr<EventPool>& pool = timed ? timed_events_ : events_;
  DeviceEvent* event = nullptr;
  {
    std::lock_guard lock(pool->mutex);
    if (!pool->spare.empty()) {
      event = pool->spare.back();
      pool->spare.pop_back();
    }
  }
  if (event == nullptr) {
    CudaEvent made = nullptr;
    if (Status status = check(cuda_.event_create(&made, timed ? 0 : kEventDisableTiming), "cuEventCreate");
        !status.ok())
      return status;
    std::lock_guard lock(pool->mutex);
    event = pool->all.emplace_back(std::make_unique<DeviceEvent>(DeviceEvent{made, this})).get();
  }
  return DeviceEventRef(event, [pool](DeviceEvent* each) {
    std::lock_guard lock(pool->mutex);
    if (!pool->is_closed) pool->spare.push_back(each);
  });
}

Result<Duration> Gpu::elapsed(const DeviceEvent& start, const DeviceEvent& end) const {
  float milliseconds = 0;
  Status status = check(cuda_.event_elapsed(&milliseconds, start.event, end.event), "cuEventElapsedTime");
  if (!status.ok()) return status;
  return seconds(static_cast<double>(milliseconds) * 1e-3);
}

Status Gpu::record(CudaEvent event, CudaStream stream) const {
  return check(cuda_.event_record(event, stream), "cuEventRecord");
}

Status Gpu::wait(CudaStream stream, CudaEvent event) const {
  return check(cuda_.stream_wait_event(stream, event, 0), "cuStreamWaitEvent");
}

// ---- kernels ----

Status Gpu::launch(CudaFunction function, std::span<const Piece> pieces, void* factor, CudaStream stream) const {
  struct Pieces {
    Piece piece[kPiecesPerLaunch];
  };
  static_assert(sizeof(Pieces) == 3840);
  for (size_t start = 0; start < pieces.size(); start += kPiecesPerLaunch) {
    std::span<const Piece> part = pieces.subspan(start, std::min(kPiecesPerLaunch, pieces.size() - start));
    Pieces all;
    uint64_t largest = 0;
    for (size_t i = 0; i < part.size(); i++) {
      all.piece[i] = part[i];
      largest = std::max(largest, part[i].count);
    }
    unsigned blocks = static_cast<unsigned>(std::clamp<uint64_t>(largest / kPerBlock + 1, 1, kMostBlocks));
    void* parameters[] = {&all, factor};
    CudaResult result = cuda_.launch(function, blocks, static_cast<unsigned>(part.size()), 1, kThreads, 1, 1, 0, stream,
                                     parameters, nullptr);
    if (Status status = check(result, "cuLaunchKernel"); !status.ok()) return status;
  }
  return {};
}

Status Gpu::copy(std::span<const Piece> pieces, CudaStream stream) const {
  return launch(copy_, pieces, nullptr, stream);
}

Status Gpu::scale(std::span<const Piece> pieces, DType dtype, double factor, CudaStream stream) const {
  CudaFunction function = scale_[static_cast<size_t>(dtype)];
  bool is_float = dtype == DType::f16 || dtype == DType::bf16 || dtype == DType::f32;
  float narrow = static_cast<float>(factor);
  return launch(function, pieces, is_float ? static_cast<void*>(&narrow) : &factor, stream);
}

Status Gpu::copy_one_by_one(std::span<const Piece> pieces, CudaStream stream) const {
  for (const Piece& piece : pieces) {
    if (piece.count == 0 || piece.from == piece.to) continue;
    CudaResult result = piece.from == 0 ? cuda_.memory_set(piece.to, 0, piece.count, stream)
                                        : cuda_.copy_on_device(piece.to, piece.from, piece.count, stream);
    if (Status status = check(result, "cuMemcpyDtoDAsync"); !status.ok()) return status;
  }
  return {};
}

// ---- memory ----

size_t Gpu::reserve(int stream, size_t wanted) {
  Buffer& buffer = buffers_[static_cast<size_t>(stream)];
  if (buffer.bytes >= wanted) return wanted;
  for (size_t bytes = wanted; bytes > buffer.bytes && bytes >= std::min(wanted, kLeastBuffer); bytes /= 2) {
    CudaPointer memory = 0;
    if (cuda_.memory_allocate(&memory, bytes) != kCudaSuccess) continue;
    if (buffer.memory != 0) {
      std::lock_guard lock(replaced_mutex_);
      replaced_.memory.push_back(buffer.memory);
    }
    buffer = {memory, bytes};
    break;
  }
  if (buffer.bytes < wanted) {
    size_t available = 0, total = 0;
    cuda_.memory_info(&available, &total);
    log_warning(
        "GPU {}: no memory for a fusion buffer of {} ({} of {} are free); tensors are fused in pieces of {}. "
        "HOROVOD_FUSION_THRESHOLD limits the buffer",
        ordinal_, bytes_text(wanted), bytes_text(available), bytes_text(total), bytes_text(buffer.bytes));
  }
  return std::min(buffer.bytes, wanted);
}

Gpu::Replaced Gpu::take_replaced() {
  std::lock_guard lock(replaced_mutex_);
  return std::exchange(replaced_, {});
}

void Gpu::free_replaced(const Replaced& replaced) const {
  for (CudaPointer memory : replaced.memory) free(memory);
  for (void* memory : replaced.on_host) cuda_.host_free(memory);
}

std::byte* Gpu::reserve_on_host(size_t bytes) {
  if (bytes > bytes_on_host_) {
    void* memory = nullptr;
    if (cuda_.host_allocate(&memory, bytes, 0) != kCudaSuccess) return nullptr;
    if (on_host_ != nullptr) {
      std::lock_guard lock(replaced_mutex_);
      replaced_.on_host.push_back(on_host_);
    }
    on_host_ = memory;
    bytes_on_host_ = bytes;
  }
  return static_cast<std::byte*>(on_host_);
}

Result<CudaPointer> Gpu::allocate(size_t bytes) const {
  CudaPointer memory = 0;
  CudaResult result = cuda_.memory_allocate(&memory, std::max<size_t>(bytes, 1));
  if (result == kCudaSuccess) return memory;
  size_t available = 0, total = 0;
  cuda_.memory_info(&available, &total);
  return Status(Code::unknown, fmt::format("cannot allocate {} on GPU {}: {}; {} of {} are free", bytes_text(bytes),
                                           ordinal_, cuda_.describe(result), bytes_text(available), bytes_text(total)));
}

void Gpu::free(CudaPointer memory) const {
  if (memory != 0) cuda_.memory_free(memory);
}

}  // namespace hvd
