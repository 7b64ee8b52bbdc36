// The cores that this process may use. Thread rule: any thread.
#pragma once

#include <sched.h>

#include <vector>

namespace hvd {

inline std::vector<int> usable_cores() {
  cpu_set_t set;
  std::vector<int> cores;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return cores;
  for (int core = 0; core < CPU_SETSIZE; core++)
    if (CPU_ISSET(static_cast<size_t>(core), &set)) cores.push_back(core);
  return cores;
}

}  // namespace hvd
