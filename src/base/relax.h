// The processor's hint between two looks at memory that another core will write. Thread rule: any thread.
#pragma once

namespace hvd {

inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace hvd
