// One launch: the NCCL calls of a group on one communicator and stream. It runs on the stream's worker, exchanges bytes
// with the peers, and ends when they have come, or at an abort.
#pragma once

#include <string>
#include <vector>

#include "nccl/device_queue.h"

namespace standin::nccl {

enum class Kind : int { all_reduce, reduce, broadcast, reduce_scatter, all_gather, send, receive, split };

struct Call {
  Kind kind;
  uint64_t send = 0, receive = 0;  // device addresses
  size_t count = 0;
  int type = 0;
  Reduction reduction;
  int root = 0;  // or the peer
  bool collective() const { return kind != Kind::send && kind != Kind::receive; }
};
std::string to_text(const Call& call);

// Bytes that the call reads and writes on this rank.
size_t bytes_read(const Call& call, const Communicator& communicator);
size_t bytes_written(const Call& call, const Communicator& communicator);

// Runs on the worker of the stream.
void run_launch(Communicator& communicator, const TurnPointer& turn, const std::vector<Call>& calls,
                const SitePointer& site);

// All ranks of the communicator exchange a block each, outside streams (for splits). Returns false after an abort or
// loss. Peers that are left out are not contacted.
bool gather_blocks(Communicator& communicator, std::vector<std::string>& blocks, const std::vector<bool>& left_out);

}  // namespace standin::nccl
