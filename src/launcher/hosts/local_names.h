// The names of this machine. Thread rule: constant once created.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "net/address.h"

namespace hvd::launcher {

class LocalNames {
 public:
  // `hosts_file` has the format of /etc/hosts: a name in it counts if one of its addresses is this machine's. No name
  // server is queried: that can take many seconds for an unknown name.
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
