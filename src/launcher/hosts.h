// The hosts of a job as the user names them, and which of them are this machine.
// Thread rule: plain values and pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace hvd {

struct Host {
  std::string name;
  int slots = 0;
  std::string user;  // of user@host; may be empty
  bool operator==(const Host&) const = default;
};

// "a:2,b:4"; a host named twice has the sum of its slots and the name given first. This machine is one host, whatever
// it is called: ranks that share memory have to agree on who is with them.
Result<std::vector<Host>> parse_hosts(std::string_view text);

bool is_local(const Host& host);

}  // namespace hvd
