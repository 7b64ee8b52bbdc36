// Which congestion control the data connections use. "auto" prefers reno to a pacing algorithm (bbr) if the round trip
// is so short that pacing only costs time: within a machine and between neighbours. "default" is the host's choice.
// Anything else is the name of an algorithm. Best effort: a host without it keeps its default. Pacing stays on for a
// connection that has once used bbr, so the algorithm is set before connecting (an accepted socket inherits it from the
// listening one) and corrected when the round trip is known. Thread rule: any thread.
#pragma once

#include <string>

namespace hvd {

std::string first_congestion(const std::string& choice);  // for a socket that will connect or listen; empty: no change
void set_congestion(int descriptor, const std::string& name);       // empty: no change
void settle_congestion(int descriptor, const std::string& choice);  // for a connected socket

}  // namespace hvd
