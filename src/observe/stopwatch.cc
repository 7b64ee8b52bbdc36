#include "observe/stopwatch.h"

#include <fstream>
#include <string>

namespace hvd::observe {
namespace {

constexpr int64_t kShortest = 1000000;  // nanoseconds between two looks that tell the rate

// Linux uses the counter itself, so it runs at one rate and is the same on all cores.
bool counter_is_a_clock() {
  std::ifstream file("/sys/devices/system/clocksource/clocksource0/current_clocksource");
  std::string name;
  file >> name;
  return name == "tsc" || name == "kvm-clock" || name == "hyperv_clocksource_tsc_page";
}

}  // namespace

Stopwatch::Stopwatch() {
#if defined(__x86_64__)
  has_counter_ = counter_is_a_clock();
  first_nanoseconds_ = clock_now();
  first_ticks_ = __rdtsc();
#endif
}

void Stopwatch::adjust() {
#if defined(__x86_64__)
  if (!has_counter_) return;
  int64_t now = clock_now();
  uint64_t ticks = __rdtsc();
  if (now - first_nanoseconds_ < kShortest || ticks <= first_ticks_) return;
  double rate = static_cast<double>(now - first_nanoseconds_) / static_cast<double>(ticks - first_ticks_);
  uint32_t next = 1 - current_.load(std::memory_order_relaxed);
  lines_[next].ticks.store(ticks, std::memory_order_relaxed);
  lines_[next].nanoseconds.store(now, std::memory_order_relaxed);
  lines_[next].rate.store(static_cast<uint64_t>(rate * (uint64_t{1} << kRateBits)), std::memory_order_relaxed);
  current_.store(next, std::memory_order_release);
#endif
}

}  // namespace hvd::observe
