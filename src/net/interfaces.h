// This host's addresses: which of them other hosts may use, and which of a peer's to try first. Reading them is a
// system call; choosing is a pure function of what was read. Thread rule: any thread.
#pragma once

#include <string>
#include <vector>

#include "net/address.h"

namespace hvd {

struct InterfaceAddress {
  std::string interface;
  IpAddress ip;
  int prefix = 0;           // bits that name the network
  int64_t speed = -1;       // Mbit/s; -1: not known
  bool is_virtual = false;  // a bridge or a virtual cable of this host (docker0, virbr0, veth...): the same address is
                            // likely to exist on other hosts, where it is something else
};

Result<std::vector<InterfaceAddress>> read_interfaces();  // all that are up, in the kernel's order

// The addresses to publish, the preferred first: real interfaces before virtual ones, fast before slow, IPv4 before
// IPv6, link-local IPv6 after the others. Loopback only when there is nothing else, link-local IPv4 never, unless
// `names` asks for their interface. An empty `names` is no restriction. Names that this host does not have are passed
// over, because hosts may name theirs differently; it is an error when none is left.
Result<std::vector<InterfaceAddress>> usable_addresses(const std::vector<InterfaceAddress>& all,
                                                       const std::vector<std::string>& names);

// A peer's endpoints in the order in which they should be tried from here: those in a network of ours first, those that
// are our own address last. A link-local one is tried through each of our interfaces.
std::vector<Endpoint> order_for_connecting(const std::vector<Endpoint>& peer,
                                           const std::vector<InterfaceAddress>& ours);

}  // namespace hvd
