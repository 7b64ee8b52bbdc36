// Connects to the probes of other hosts at each of their addresses, and compares clocks. Thread rule: one thread; calls
// block until their deadline at most.
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

// Tries every address separately, many at a time, each for `patience`. `streams` gets the first connection to each
// neighbour that was reached, in order; null for the others.
std::vector<Attempt> try_addresses(const std::vector<Neighbour>& neighbours, const Credentials& credentials,
                                   int32_t own_rank, Duration patience, TimePoint deadline,
                                   std::vector<std::unique_ptr<Stream>>& streams);

// How far our clock is ahead of the clock of the probe at the other end: asks several times and uses the quickest
// answer, which is the most precise.
Result<ClockOffset> compare_clocks(Stream& stream, TimePoint deadline);

}  // namespace hvd::launcher
