#include "rendezvous/world.h"

#include <fmt/core.h>

namespace hvd {

Result<World> world_from_config(const Config& config, Generation generation) {
  bool is_one_host = config.local_size == config.size;
  if (config.rendezvous_addr.empty() && (config.job.empty() || !is_one_host)) {
    if (config.size == 1) return World{.host = config.hostname, .generation = generation};
    return Status(
        Code::invalid_argument,
        fmt::format("HOROVOD_SIZE is {} but HOROVOD_GLOO_RENDEZVOUS_ADDR is not set, so the ranks cannot find "
                    "each other; start the job with horovodrun -np {}",
                    config.size, config.size));
  }
  if (is_one_host && config.rank != config.local_rank) {
    return Status(Code::invalid_argument,
                  fmt::format("HOROVOD_RANK is {} but HOROVOD_LOCAL_RANK is {}: on one host they must be equal",
                              config.rank, config.local_rank));
  }
  if (!is_one_host && config.cross_size == 1 && config.local_rank == 0) {
    return Status(Code::invalid_argument,
                  fmt::format("HOROVOD_SIZE is {} and HOROVOD_LOCAL_SIZE is {}, so there are several hosts, but "
                              "HOROVOD_CROSS_SIZE is 1",
                              config.size, config.local_size));
  }
  if ((config.rank == 0) != (config.local_rank == 0 && config.cross_rank == 0)) {
    return Status(
        Code::invalid_argument,
        fmt::format("rank {} has HOROVOD_LOCAL_RANK={} and HOROVOD_CROSS_RANK={}: rank 0, and only rank 0, must "
                    "be the first rank of the first host",
                    config.rank, config.local_rank, config.cross_rank));
  }
  return World{
      .rank = config.rank,
      .size = config.size,
      .local_rank = config.local_rank,
      .local_size = config.local_size,
      .cross_rank = config.cross_rank,
      .cross_size = config.cross_size,
      .host = config.hostname,
      .job = config.job.empty() ? fmt::format("{}:{}", config.rendezvous_addr, config.rendezvous_port) : config.job,
      .generation = generation};
}

}  // namespace hvd
