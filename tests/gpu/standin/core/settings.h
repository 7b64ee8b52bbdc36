// What the environment asks of the stand-in (HVD_STANDIN_*), read once. docs/gpu.md has the table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "core/visible.h"

namespace standin {

enum class Schedule { eager, lazy, random };

struct Settings {
  int gpus = 2;
  size_t memory = size_t{8} << 30;  // bytes of each GPU
  Schedule schedule = Schedule::eager;
  uint64_t seed = 1;
  bool abort_at_once = true;      // at a violation; else the process ends with kViolationExit
  bool leaks_fail = true;         // what is alive at exit is a violation; else it is only printed
  bool count_only = false;        // do nothing but count calls
  bool threads_apart = false;     // host threads are ordered by CUDA calls alone, not by the order of their calls
  bool peer_loss_shows = true;    // a lost peer becomes an asynchronous error; else operations wait in silence
  bool unrecorded_waits = false;  // waiting for an event that was never recorded is allowed, as in CUDA
  int driver_version = 12040;
  int nccl_version = 0;  // 0: the version that the library was built as
  int rank = -1;         // for faults that name a rank
  std::string faults;
  std::string fault_folder;
};

inline constexpr int kViolationExit = 86;

STANDIN_VISIBLE const Settings& settings();

// "eager", or "random(17)".
std::string schedule_name();

}  // namespace standin
