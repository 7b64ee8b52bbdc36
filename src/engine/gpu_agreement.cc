#include "engine/gpu_agreement.h"

#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "backends/nccl/nccl_backend.h"
#include "backends/nccl/offer.h"
#include "base/log.h"
#include "engine/engine.h"

namespace hvd {
namespace {

constexpr const char* kName = "horovod.gpu_offers";

NcclSettings nccl_settings(const Config& config) {
  NcclSettings settings{.streams = config.nccl_streams,
                        .use_kernels = config.batch_gpu_copies,
                        .operation_limit = seconds(config.collective_timeout),
                        .warn_after = config.stall_check ? seconds(config.stall_warning_time) : Duration{}};
  if (config.collective_timeout > 0) settings.init_limit = std::min(settings.init_limit, settings.operation_limit);
  if (config.fusion_threshold) settings.fusion_threshold = static_cast<size_t>(*config.fusion_threshold);
  return settings;
}

// Gathers the offers of all ranks with an ordinary operation on host memory.
Status gather(Engine& engine, const GpuOffer& mine, std::vector<GpuOffer>& all) {
  size_t ranks = static_cast<size_t>(engine.world().size);
  if (ranks == 1) {
    all = {mine};
    return {};
  }
  GpuOffer sent = mine;
  TaskRef task = make_task(1);
  Operation& operation = task->operations.front();
  operation.request.name = kName;
  operation.request.kind = Kind::allgather;
  operation.request.dtype = DType::u8;
  operation.request.shape = {1, sizeof(GpuOffer)};
  operation.input = {.data = reinterpret_cast<std::byte*>(&sent), .dtype = DType::u8, .shape = operation.request.shape};
  operation.output.dtype = DType::u8;
  if (Status status = engine.submit(task, true); !status.ok()) return status;
  engine.wait(task, kNever);
  Status status = task->status;
  if (status.ok()) {
    const auto* offers = reinterpret_cast<const GpuOffer*>(operation.output.data);
    all.assign(offers, offers + ranks);
  }
  engine.operations()->release(task->handle);
  return status;
}

}  // namespace

LibraryPlaces library_places(const Config& config) {
  return {.nccl_library = config.nccl_library,
          .nccl_home = config.nccl_home,
          .cuda_home = config.cuda_home,
          .library_path = config.library_path,
          .conda_prefix = config.conda_prefix,
          .site_packages = own_site_packages()};
}

Status check_gpus() {
  std::string lost = lost_context();
  if (lost.empty()) return {};
  return {Code::unknown, fmt::format("this process cannot go on, and has to be replaced by a new one: {}", lost)};
}

Status agree_on_gpus(Engine& engine, const Config& config) {
  LibrarySearch found = find_libraries(library_places(config));
  bool wants_torus = config.hierarchical_allreduce.value_or(false) || config.torus_allreduce.value_or(false);
  std::vector<GpuOffer> offers;
  Status gathered = gather(engine, gpu_offer(found, config.gpu_operations, wants_torus), offers);
  if (!gathered.ok()) return {};  // the world has failed, and the next operation reports why
  GpuDecision decision = decide_on_nccl(offers);
  if (decision.is_error) {
    return {Code::unknown,
            fmt::format("HOROVOD_GPU_OPERATIONS=nccl, but not every rank can use NCCL: {}", decision.reason)};
  }
  if (!decision.use_nccl) {
    std::string text = fmt::format("GPU tensors are copied through host memory: {}", decision.reason);
    if (engine.world().rank == 0 && decision.is_surprise) {
      log_warning("{}", text);
    } else {
      log_debug("{}", text);
    }
    return {};
  }
  engine.attach_device([&](BackendContext context) {
    NcclSettings settings = nccl_settings(config);
    settings.use_torus = decision.use_torus;
    return std::make_unique<NcclBackend>(std::move(context), std::move(found), settings);
  });
  return {};
}

}  // namespace hvd
