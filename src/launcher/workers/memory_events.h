// Whether the kernel has killed processes of this one's control group for lack of memory. Thread rule: one thread.
#pragma once

#include <cstdint>

namespace hvd {

class MemoryEvents {
 public:
  MemoryEvents();
  bool has_killed();  // since it was last asked, or made

 private:
  int64_t kills_;  // so far; -1: the kernel does not tell
};

}  // namespace hvd
