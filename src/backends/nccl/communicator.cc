#include "backends/nccl/communicator.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <map>

namespace hvd {

void set_text(std::span<char> field, const std::string& text) {
  std::memcpy(field.data(), text.data(), std::min(text.size(), field.size() - 1));
}

Status judge(std::span<const Introduction> members) {
  std::map<std::pair<std::string, std::string>, int32_t> owners;  // of a GPU: host and PCI id
  for (const Introduction& member : members) {
    if (member.is_ready == 0) {
      return {Code::unknown,
              fmt::format("rank {} cannot use its GPU: {}; HOROVOD_GPU_OPERATIONS=host copies GPU tensors through host "
                          "memory instead",
                          member.rank, member.text.data())};
    }
    const Introduction& first = members.front();
    if (nccl_release(member.version) != nccl_release(first.version) || member.is_hip != first.is_hip) {
      return {
          Code::unknown,
          fmt::format("rank {} has NCCL {} but rank {} has NCCL {}; use the same version on all ranks, "
                      "or HOROVOD_GPU_OPERATIONS=host",
                      first.rank, nccl_version_text(first.version), member.rank, nccl_version_text(member.version))};
    }
    auto [owner, is_new] = owners.try_emplace({member.host.data(), member.pci_id.data()}, member.rank);
    if (!is_new) {
      return {
          Code::unknown,
          fmt::format("rank {} and rank {} both use the GPU {} of host {}; give each rank a GPU of its own, as with "
                      "torch.cuda.set_device(hvd.local_rank())",
                      owner->second, member.rank, member.pci_id.data(), member.host.data())};
    }
  }
  return {};
}

}  // namespace hvd
