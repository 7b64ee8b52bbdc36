// How Open MPI is told which interfaces to use. Thread rule: pure function.
#pragma once

#include <string>
#include <vector>

#include "net/interfaces.h"

namespace hvd {

// The names, or, if this host has only some of them, the networks of those: hosts then name theirs differently, and
// Open MPI fails on a host that does not have a name it was given. `all` are this host's.
std::vector<std::string> networks_of(const std::vector<std::string>& names, const std::vector<InterfaceAddress>& all);

}  // namespace hvd
