// One GPU of this process: its primary context, our streams on it, the kernels, pools of events and the fusion buffers.
// Made at the first tensor on this GPU, so a rank has no context on GPUs that it does not use.
// Thread rule: events may be taken and given back, and memory allocated and freed, by any thread; everything else is
// for one caller at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backends/nccl/cuda_api.h"
#include "base/clock.h"
#include "base/status.h"
#include "model/dtype.h"

namespace hvd {

// What one launch of a kernel copies or scales. The layout is that of kernels/kernels.cu.
struct Piece {
  CudaPointer from = 0;  // 0: zeros
  CudaPointer to = 0;
  uint64_t count = 0;  // bytes to copy, elements to scale
};
inline constexpr size_t kPiecesPerLaunch = 160;

class Gpu;

// An event of a GPU; goes back to the pool with its last owner, which may outlive the GPU.
struct DeviceEvent {
  CudaEvent event = nullptr;
  Gpu* gpu = nullptr;
};
using DeviceEventRef = std::shared_ptr<DeviceEvent>;

struct EventPool {
  std::mutex mutex;  // guards what follows
  bool is_closed = false;
  std::vector<std::unique_ptr<DeviceEvent>> all;
  std::vector<DeviceEvent*> spare;
};

class Gpu {
 public:
  // Shared with outputs that the caller has taken over, which may outlive the world.
  static Result<std::shared_ptr<Gpu>> open(const CudaApi& cuda, int ordinal, int streams);
  ~Gpu();

  // Makes the context of this GPU current in the calling thread while it lives.
  class Current {
   public:
    explicit Current(const Gpu& gpu);
    Current(const Current&) = delete;
    ~Current();

   private:
    const CudaApi& cuda_;
    CudaResult status_;
    CudaDevice before_ = -1;  // of HIP
  };

  int ordinal() const { return ordinal_; }
  const std::string& pci_id() const { return pci_id_; }
  CudaStream stream(int index) const { return streams_[static_cast<size_t>(index)]; }
  bool has_kernels() const { return module_ != nullptr; }

  // The context must be current. `timed`: elapsed() can use it.
  Result<DeviceEventRef> take_event(bool timed = false);
  Result<Duration> elapsed(const DeviceEvent& start, const DeviceEvent& end) const;  // both have happened
  Status record(CudaEvent event, CudaStream stream) const;
  Status wait(CudaStream stream, CudaEvent event) const;

  // Copies or scales all pieces on the stream, with as few launches as possible. Needs has_kernels().
  Status copy(std::span<const Piece> pieces, CudaStream stream) const;
  Status scale(std::span<const Piece> pieces, DType dtype, double factor, CudaStream stream) const;
  // The same without kernels: one copy per piece.
  Status copy_one_by_one(std::span<const Piece> pieces, CudaStream stream) const;

  // The fusion buffer of a stream, with up to `wanted` bytes: as many as there is memory for. A buffer that is replaced
  // is kept, because plans that were handed over use it: when all these are over, it can be taken and freed.
  size_t reserve(int stream, size_t wanted);
  CudaPointer buffer(int stream) const { return buffers_[static_cast<size_t>(stream)].memory; }
  struct Replaced {
    std::vector<CudaPointer> memory;
    std::vector<void*> on_host;
  };
  Replaced take_replaced();  // any thread
  void free_replaced(const Replaced& replaced) const;
  // Pinned memory of the host for one tensor at a time, which stays as long as the fusion buffers; null: there is none.
  std::byte* reserve_on_host(size_t bytes);

  Result<CudaPointer> allocate(size_t bytes) const;
  void free(CudaPointer memory) const;
  Status check(CudaResult result, const char* call) const;

 private:
  struct Buffer {
    CudaPointer memory = 0;
    size_t bytes = 0;
  };

  Gpu(CudaApi cuda, int ordinal) : cuda_(std::move(cuda)), ordinal_(ordinal) {}
  Status start(int streams);
  void load_kernels();
  Status launch(CudaFunction function, std::span<const Piece> pieces, void* factor, CudaStream stream) const;

  const CudaApi cuda_;
  const int ordinal_;
  CudaDevice device_ = -1;
  CudaContext context_ = nullptr;
  std::string pci_id_;
  CudaModule module_ = nullptr;
  CudaFunction copy_ = nullptr;
  std::vector<CudaFunction> scale_;  // by DType; null: none
  std::vector<CudaStream> streams_;
  std::vector<Buffer> buffers_;  // by stream
  std::mutex replaced_mutex_;    // guards replaced_
  Replaced replaced_;
  void* on_host_ = nullptr;
  size_t bytes_on_host_ = 0;
  const std::shared_ptr<EventPool> events_ = std::make_shared<EventPool>();
  const std::shared_ptr<EventPool> timed_events_ = std::make_shared<EventPool>();
};

// "12.0 MiB".
std::string bytes_text(size_t bytes);
// Why this process cannot use its GPU again: a sticky error, or an abort that does not return. Empty: it can.
std::string lost_context();
void lose_context(const std::string& text);

}  // namespace hvd
