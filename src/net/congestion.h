// Which congestion control the data connections use. Choices: "auto" prefers reno to one that paces (bbr) where the
// round trip is so short that pacing only costs time: within a machine and between neighbours. "default" is what the
// host has chosen. Anything else is the name of one. Best effort: a host that does not have it keeps its default.
// Pacing stays with a connection that has once been under bbr, so it is chosen before it connects (a called one takes
// it from the listening socket) and corrected once the round trip is known. Thread rule: any thread.
#pragma once

#include <string>

namespace hvd {

std::string first_congestion(const std::string& choice);  // of a socket that will connect or listen; empty: leave it
void set_congestion(int descriptor, const std::string& name);       // empty: leave it
void settle_congestion(int descriptor, const std::string& choice);  // of one that is connected

}  // namespace hvd
