// Team for numpy_bench.py, which loads it with ctypes: one team per process.
#include <memory>

#include "team.h"

#define BENCH_EXPORT extern "C" __attribute__((visibility("default")))

namespace {
std::unique_ptr<bench::Team> team;
}

BENCH_EXPORT void bench_join(int rank, int size) { team = std::make_unique<bench::Team>(rank, size); }
BENCH_EXPORT void bench_pin() { team->pin(); }
BENCH_EXPORT void bench_barrier() { team->barrier(); }
BENCH_EXPORT double bench_share(double value) { return team->share(value); }
BENCH_EXPORT double bench_largest(double value) { return team->largest(value); }
BENCH_EXPORT double bench_probe() { return team->probe(); }
