// What this machine is called. Thread rule: constant once made.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "net/address.h"

namespace hvd::launcher {

class LocalNames {
 public:
  // `hosts_file` is read in the form of /etc/hosts: a name in it counts if one of its addresses is this machine's. No
  // name server is asked: that can take many seconds for a name that it does not know.
  static LocalNames read(const std::string& hosts_file = "/etc/hosts");

  bool contains(std::string_view name) const;  // a name or an address

 private:
  void add_interfaces();
  void add_names_of(const std::string& hosts_file);
  bool has(const IpAddress& ip) const;

  std::set<std::string, std::less<>> names_;  // in lower case
  std::vector<IpAddress> addresses_;          // without scopes
};

}  // namespace hvd::launcher
