// This host's addresses: which ones other hosts may use, and in which order to try those of a peer. Reading them takes
// system calls; choosing is a pure function of the result. Thread rule: any thread.
#pragma once

#include <string>
#include <vector>

#include "net/address.h"

namespace hvd {

struct InterfaceAddress {
  std::string interface;
  IpAddress ip;
  int prefix = 0;           // length of the network prefix in bits
  int64_t speed = -1;       // Mbit/s; -1: unknown
  bool is_virtual = false;  // a bridge or a virtual cable of this host (docker0, virbr0, veth...): other hosts are
                            // likely to use the same address for something else
};

Result<std::vector<InterfaceAddress>> read_interfaces();  // all that are up, in the kernel's order

// The addresses to publish, in order of preference: real interfaces before virtual ones, fast before slow, IPv4 before
// IPv6, link-local IPv6 last. Loopback only if there is nothing else, link-local IPv4 never, unless `names` lists their
// interface. An empty `names` means no restriction. Names that do not exist on this host are skipped, because hosts may
// use different ones; it is an error if none is left.
Result<std::vector<InterfaceAddress>> usable_addresses(const std::vector<InterfaceAddress>& all,
                                                       const std::vector<std::string>& names);

// A peer's endpoints in the order in which to try them from here: those in one of our networks first, those that equal
// one of our own addresses last. A link-local one is tried through each of our interfaces.
std::vector<Endpoint> order_for_connecting(const std::vector<Endpoint>& peer,
                                           const std::vector<InterfaceAddress>& ours);

}  // namespace hvd
