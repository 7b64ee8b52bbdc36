#include "backends/nccl/communicator.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <map>

namespace hvd {

void set_text(std::span<char> field, const std::string& text) {
  std::memcpy(field.data(), text.data(), std::min(text.size(), field.size() - 1));
}

HostLayout host_layout(std::span<const int32_t> members, std::span<const int32_t> host_of, int32_t rank) {
  HostLayout layout{.local_size = 0};
  std::map<int32_t, int32_t> counts;  // of members, by host
  auto host_at = [&](int32_t member) { return host_of.empty() ? 0 : host_of[static_cast<size_t>(member)]; };
  for (int32_t member : members) counts[host_at(member)]++;
  for (int32_t member : members) {
    if (host_at(member) != host_at(rank)) continue;
    layout.local_size++;
    if (member < rank) layout.position++;
  }
  layout.hosts = static_cast<int32_t>(counts.size());
  layout.host = static_cast<int32_t>(std::distance(counts.begin(), counts.find(host_at(rank))));
  layout.is_even =
      std::all_of(counts.begin(), counts.end(), [&](const auto& each) { return each.second == layout.local_size; });
  return layout;
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
