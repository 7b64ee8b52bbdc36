// This rank's position among all ranks. Thread rule: plain value.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/request.h"

namespace hvd {

enum class Generation : uint64_t {};  // one incarnation of a world; every init() in a process starts the next

struct World {
  int32_t rank = 0, size = 1;
  int32_t local_rank = 0, local_size = 1;
  int32_t cross_rank = 0, cross_size = 1;
  bool crowded = false;  // some ranks of this machine must share a core; agreed when the ranks of the host meet
  std::string host = "localhost";
  std::vector<int32_t> host_of;  // by rank: equal numbers mean the same host; empty: all ranks are on this host
  std::string job;               // names the job; ranks of different jobs never connect
  Generation generation{0};
};

}  // namespace hvd
