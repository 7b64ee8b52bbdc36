// A communicator of NCCL for the members of a process set, on one device each, and on one of our streams; and what its
// members tell each other before it is made. Thread rule: see each field.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "backends/nccl/gpu.h"
#include "backends/nccl/nccl_api.h"
#include "base/status.h"

namespace hvd {

// The hosts of the members of a communicator, from one member's point of view.
struct HostLayout {
  int32_t hosts = 1;
  int32_t host = 0;                      // of this member: its index among them
  int32_t local_size = 1, position = 0;  // members on this host, and this one's place among them
  bool is_even = true;                   // all hosts have as many
};
// `members`: ranks of the world. `host_of`: by rank of the world; empty: all are on one host.
HostLayout host_layout(std::span<const int32_t> members, std::span<const int32_t> host_of, int32_t rank);

struct Communicator {
  // Set by the thread that drives, before the first plan is handed over.
  int32_t process_set = 0;
  uint32_t map_number = 0;
  int stream = 0;
  int32_t position = 0, size = 1;
  HostLayout hosts;
  Gpu* gpu = nullptr;
  NcclId id{};
  // Of the thread that drives: bytes that the members can fuse, and whether they tried to get more in vain.
  size_t fusion_bytes = 0;
  bool is_limited = false;
  // Of the GPU thread. `local`: the members on this host; `cross`: those with the same place on each host. Both are
  // split off at the first plan that needs them.
  NcclComm comm = nullptr;
  NcclComm local = nullptr, cross = nullptr;
  std::array<NcclComm, 3> all() const { return {cross, local, comm}; }  // in the order in which they may be destroyed
};

// One member's introduction; all members see all of them and judge alike.
struct Introduction {
  static constexpr size_t kText = 272;
  int32_t rank = 0;  // of the world
  int32_t version = 0;
  int32_t is_hip = 0;
  int32_t is_ready = 0;
  NcclId id{};  // of the first member
  std::array<char, 32> pci_id{};
  std::array<char, 64> host{};
  std::array<char, kText> text{};  // why it is not ready
};
static_assert(sizeof(Introduction) == 512);

void set_text(std::span<char> field, const std::string& text);
// Not ok: the communicator cannot be made; says which ranks are the cause.
Status judge(std::span<const Introduction> members);

}  // namespace hvd
