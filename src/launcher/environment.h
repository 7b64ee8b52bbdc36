// What a worker finds in its environment: its place, where its peers meet, and the job's key.
// Thread rule: plain values and pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "launcher/assignment.h"
#include "launcher/tunables.h"

namespace hvd {

struct Meeting {
  std::string address;
  uint16_t port = 0;
  std::string key;  // hex of 32 random bytes; given to local children by environment, never printed
};

Result<std::string> random_key();

// NAME=VALUE strings: `inherited`, overridden by `variables` and by what follows from the slot.
// `cores` is what this machine offers to the job.
std::vector<std::string> worker_environment(char* const* inherited, const Variables& variables, const Slot& slot,
                                            const Meeting& meeting, int cores);

}  // namespace hvd
