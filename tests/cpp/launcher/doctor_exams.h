// Hosts in good health, for tests that make one of them ill, and one that is not there. Thread rule: pure functions.
#pragma once

#include <string>
#include <vector>

#include "launcher/doctor/facts.h"

namespace hvd::launcher {

inline Facts healthy_facts(const std::string& name, const std::vector<std::string>& others) {
  Facts facts;
  facts.installation = {.horovodrun = "1.0.0",
                        .python = "/usr/bin/python3",
                        .python_version = "3.11.2",
                        .package = "1.0.0",
                        .library = "/lib/libhorovod.so",
                        .library_version = "1.0.0",
                        .library_error = ""};
  facts.resources = {.kernel = "6.1.0-13-amd64",
                     .machine = "x86_64",
                     .cores = 8,
                     .quota = {},
                     .memory = uint64_t{64} << 30,
                     .open_files = 65536,
                     .locked_memory = uint64_t{8} << 20,
                     .processes = {},
                     .has_rdma = false,
                     .shm = uint64_t{8} << 30};
  facts.addresses = {{.ip = "10.0.0." + name, .port = 4711, .interface = "eth0", .is_virtual = false},
                     {.ip = "172.17.0.1", .port = 4711, .interface = "docker0", .is_virtual = true}};
  for (const std::string& other : others) {
    facts.attempts.push_back({.host = other,
                              .address = {.ip = "10.0.0." + other, .port = 4711, .interface = "eth0"},
                              .time = 0.001,
                              .error = "",
                              .is_own = false});
    facts.attempts.push_back({.host = other,
                              .address = {.ip = "172.17.0.1", .port = 4711, .interface = "docker0", .is_virtual = true},
                              .time = {},
                              .error = "connection refused",
                              .is_own = true});
  }
  facts.clock = ClockOffset{.seconds = 0.0002, .uncertainty = 0.0001};
  facts.allreduce = Trial{.seconds = 0.002};
  return facts;
}

// Their names are numbers: "1", "2", ...
inline std::vector<HostExam> healthy_hosts(int count) {
  std::vector<HostExam> hosts;
  for (int i = 1; i <= count; i++) {
    std::vector<std::string> others;
    for (int j = 1; j <= count; j++)
      if (j != i) others.push_back(std::to_string(j));
    std::string name = std::to_string(i);
    hosts.push_back({.name = name,
                     .slots = 1,
                     .contact_error = "",
                     .command = "",
                     .probe_error = "",
                     .facts = healthy_facts(name, others)});
  }
  return hosts;
}

// A host that could not be contacted.
inline HostExam lost_host() {
  return {.name = "gone",
          .slots = 1,
          .contact_error = "Connection refused",
          .command = "ssh gone true",
          .probe_error = "",
          .facts = {}};
}

}  // namespace hvd::launcher
