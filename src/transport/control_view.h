// One rank's view of the control block. Thread rule: plain value; the fields say which rank writes them.
#pragma once

#include <cstdint>

#include "transport/shared_memory.h"

namespace hvd {

struct ControlView {
  ControlBlock* block = nullptr;
  int32_t rank = 0, size = 1;  // among the ranks of this host

  bool is_root() const { return rank == 0; }
  RankBlock& of(int32_t peer) const { return block->ranks[peer]; }
  RankBlock& mine() const { return block->ranks[rank]; }
};

}  // namespace hvd
