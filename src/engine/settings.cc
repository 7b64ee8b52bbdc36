#include "engine/settings.h"

#include <unistd.h>

#include <algorithm>

#include "base/cores.h"

namespace hvd {
namespace {

Tuning initial_tuning(const Config& config) {
  Tuning tuning;
  tuning.fusion_threshold = config.fusion_threshold.value_or(tuning.fusion_threshold);
  tuning.cycle_time_ms = config.cycle_time_ms.value_or(tuning.cycle_time_ms);
  tuning.one_shot_limit = config.one_shot_limit.value_or(tuning.one_shot_limit);
  return tuning;
}

}  // namespace

// A rank with a few of many cores has them for itself. A core that was chosen for the thread counts as spare.
bool has_spare_core(const World& world, const Config& config) {
  if (!config.thread_affinity.empty()) return true;
  auto usable = static_cast<int32_t>(usable_cores().size());
  return usable > 1 && (usable > world.local_size || usable < ::sysconf(_SC_NPROCESSORS_ONLN));
}

TransportSettings transport_settings(const World& world, const Config& config) {
  TransportSettings settings;
  // Many ranks share the memory that a few would have.
  int64_t crowd = std::max(1, world.local_size / 16);
  // A chunk that is divided by destination has a cache line for each rank.
  int64_t smallest_chunk = int64_t{64} * world.local_size;
  settings.channel = {
      .ring = static_cast<size_t>(std::max<int64_t>(config.shm_ring_bytes / crowd / 4096 * 4096, 64 << 10)),
      .chunk = static_cast<size_t>(std::max(config.shm_chunk_bytes, smallest_chunk)),
      .chunks = static_cast<size_t>(std::max<int64_t>(config.shm_chunks / crowd, 4))};
  settings.crowded = world.crowded;
  settings.spin = world.crowded ? Duration{} : seconds(config.spin_us * 1e-6);
  settings.yield = seconds(config.yield_us * 1e-6);
  settings.stall_warning = config.stall_check ? seconds(config.stall_warning_time) : Duration{};
  settings.collective_timeout = seconds(config.collective_timeout);
  return settings;
}

CoordinatorSettings coordinator_settings(const Config& config, const HostGroup& group) {
  CoordinatorSettings settings;
  settings.tuning = initial_tuning(config);
  settings.cache_capacity = static_cast<size_t>(config.cache_capacity.value_or(1024));
  settings.disable_group_fusion = config.disable_group_fusion;
  settings.stall_check = config.stall_check;
  settings.stall_warning = seconds(config.stall_warning_time);
  settings.stall_shutdown = seconds(config.stall_shutdown_time);
  settings.collective_timeout = seconds(config.collective_timeout);
  settings.rank_names = group.rank_names;
  return settings;
}

TunerSettings tuner_settings(const Config& config, const Tuning& start) {
  return {.start = start,
          .fixed_fusion_threshold = config.fusion_threshold.has_value(),
          .fixed_cycle_time = config.cycle_time_ms.has_value(),
          .fixed_cache = config.cache_capacity.has_value(),
          .fixed_one_shot_limit = config.one_shot_limit.has_value(),
          .warmup_samples = config.autotune_warmup_samples,
          .steps_per_sample = config.autotune_steps_per_sample,
          .max_samples = config.autotune_bayes_opt_max_samples,
          .noise = config.autotune_gaussian_process_noise,
          .log_path = config.autotune_log};
}

}  // namespace hvd
