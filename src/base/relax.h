// The CPU's hint for spin loops that poll memory written by another core. Thread rule: any thread.
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
