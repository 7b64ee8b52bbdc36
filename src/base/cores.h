// The cores that this process may use. Thread rule: any thread.
#pragma once

#include <sched.h>

#include <memory>
#include <vector>

namespace hvd {

inline std::vector<int> usable_cores() {
  std::vector<int> cores;
  // The kernel rejects a set smaller than its own, so retry with larger ones on large machines.
  for (int room = CPU_SETSIZE; room <= 64 * CPU_SETSIZE; room *= 4) {
    std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> set(CPU_ALLOC(static_cast<size_t>(room)),
                                                         [](cpu_set_t* made) { CPU_FREE(made); });
    size_t bytes = CPU_ALLOC_SIZE(static_cast<size_t>(room));
    if (!set || ::sched_getaffinity(0, bytes, set.get()) != 0) continue;
    for (int core = 0; core < room; core++)
      if (CPU_ISSET_S(static_cast<size_t>(core), bytes, set.get())) cores.push_back(core);
    break;
  }
  return cores;
}

}  // namespace hvd
