#include "transport/local.h"

#include <fcntl.h>
#include <fmt/core.h>

#include "base/bell.h"
#include "transport/shared_memory.h"

namespace hvd {

Result<std::vector<HostGroup>> make_local_groups(int32_t size) {
  auto memory = create_shared_memory(ControlBlock::bytes(size));
  if (!memory.ok()) return memory.status();
  std::vector<UniqueFd> bells;
  for (int32_t rank = 0; rank < size; rank++) {
    auto bell = create_bell();
    if (!bell.ok()) return bell.status();
    bells.push_back(std::move(*bell));
  }
  auto copy = [](const UniqueFd& fd) { return UniqueFd(::fcntl(fd.get(), F_DUPFD_CLOEXEC, 0)); };
  std::vector<HostGroup> groups(static_cast<size_t>(size));
  for (int32_t rank = 0; rank < size; rank++) {
    HostGroup& group = groups[static_cast<size_t>(rank)];
    group.rank = rank;
    group.size = size;
    group.memory = copy(*memory);
    for (int32_t peer = 0; peer < size; peer++) {
      group.bells.push_back(copy(bells[static_cast<size_t>(peer)]));
      if (!group.bells.back()) return system_error("cannot copy a descriptor", "");
      group.rank_names.push_back(fmt::format("rank {} (thread)", peer));
    }
  }
  return groups;
}

}  // namespace hvd
