#include "rendezvous/world.h"

#include <fmt/core.h>

namespace hvd {

Result<World> world_from_config(const Config& config, Generation generation) {
  if (config.rendezvous_addr.empty()) {
    if (config.size == 1) return World{.host = config.hostname, .generation = generation};
    return Status(
        Code::invalid_argument,
        fmt::format("HOROVOD_SIZE is {} but HOROVOD_GLOO_RENDEZVOUS_ADDR is not set, so the ranks cannot find "
                    "each other; start the job with horovodrun -np {}",
                    config.size, config.size));
  }
  if (config.local_size != config.size) {
    return Status(Code::invalid_argument,
                  fmt::format("HOROVOD_SIZE is {} but HOROVOD_LOCAL_SIZE is {}: this version connects the processes of "
                              "one host only; start all of them on one host",
                              config.size, config.local_size));
  }
  if (config.rank != config.local_rank) {
    return Status(Code::invalid_argument,
                  fmt::format("HOROVOD_RANK is {} but HOROVOD_LOCAL_RANK is {}: on one host they must be equal",
                              config.rank, config.local_rank));
  }
  return World{.rank = config.rank,
               .size = config.size,
               .local_rank = config.local_rank,
               .local_size = config.local_size,
               .cross_rank = config.cross_rank,
               .cross_size = config.cross_size,
               .host = config.hostname,
               .job = fmt::format("{}:{}", config.rendezvous_addr, config.rendezvous_port),
               .generation = generation};
}

}  // namespace hvd
