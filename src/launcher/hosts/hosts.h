// The hosts of a job as the user names them, and which of them are this machine.
// Thread rule: plain values and pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace hvd {

struct Host {
  std::string name;  // an IPv6 address without its brackets
  int slots = 0;
  std::string user = {};  // of user@host; may be empty
  bool operator==(const Host&) const = default;
};

// [USER@]HOST[:SLOTS]; an IPv6 address is in brackets; one slot where none is named.
Result<Host> parse_host(std::string_view text);

// "a:2,b:4"; merged as below. `names_count`: each name is a host of its own, as in elastic jobs, also those of this
// machine.
Result<std::vector<Host>> parse_hosts(std::string_view text, bool names_count = false);

// A host named twice has the sum of its slots and the name given first. This machine is one host, whatever it is
// called: ranks that share memory have to agree on who is with them.
Status merge_host(std::vector<Host>& hosts, Host host, bool names_count = false);

// Without asking the network: by name, by /etc/hosts and by the addresses of this machine's interfaces.
bool is_local(const Host& host);

// "a:2, b:4"; of many, the first few.
std::string describe(const std::vector<Host>& hosts);

}  // namespace hvd
