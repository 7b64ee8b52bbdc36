#include "elastic/worker.h"

#include <fmt/core.h>

namespace hvd::elastic {

std::string name_of(const Worker& worker) {
  uint64_t id = static_cast<uint64_t>(worker.id);
  if (worker.is_newcomer()) return fmt::format("worker {} (host {})", id, worker.host);
  return fmt::format("worker {} (rank {}, host {})", id, worker.rank, worker.host);
}

}  // namespace hvd::elastic
