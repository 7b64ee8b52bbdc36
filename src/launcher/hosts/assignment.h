// Which rank runs where: hosts in the given order, their slots filled one after another.
// Thread rule: plain values and pure functions.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "launcher/hosts/hosts.h"

namespace hvd {

struct Slot {
  std::string host;  // as the user wrote it
  int rank = 0, size = 1;
  int local_rank = 0, local_size = 1;
  int cross_rank = 0, cross_size = 1;  // among the ranks of the same local rank, one per host
};

// Exactly `num_proc` slots; an error when the hosts have fewer.
Result<std::vector<Slot>> assign(const std::vector<Host>& hosts, int num_proc);

}  // namespace hvd
