// Calls the probes of other hosts at each of their addresses, and compares clocks.
// Thread rule: one thread; everything blocks until its deadline at most.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "launcher/doctor/facts.h"
#include "net/connector.h"
#include "net/interfaces.h"

namespace hvd::launcher {

struct Neighbour {
  int32_t rank = 0;
  std::string host;
  std::vector<Address> addresses;
};

// Tries every address once for itself, many at a time, each for `patience`. `streams` gets the first connection to each
// neighbour that was reached, in their order; null for the others.
std::vector<Attempt> try_addresses(const std::vector<Neighbour>& neighbours, const Credentials& credentials,
                                   int32_t own_rank, Duration patience, TimePoint deadline,
                                   std::vector<std::unique_ptr<Stream>>& streams);

// How far our clock is ahead of the one of the probe at the other end: asks a few times and uses the
// quickest answer, which is the most exact.
Result<ClockOffset> compare_clocks(Stream& stream, TimePoint deadline);

}  // namespace hvd::launcher
