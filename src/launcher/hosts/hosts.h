// The hosts of a job: parsing of options and files, which hosts are this machine, and which rank runs where. Thread
// rule: plain values and pure functions; read_*() read a file.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace hvd::launcher {

struct Host {
  std::string name;  // an IPv6 address without brackets
  int slots = 0;
  std::string user = {};  // of user@host; may be empty
  bool operator==(const Host&) const = default;
};

// [USER@]HOST[:SLOTS]; an IPv6 address is in brackets; one slot if no number is given.
Result<Host> parse_host(std::string_view text);

// "a:2,b:4"; merged as below. `names_count`: each name is a separate host, even if it is this machine, as in elastic
// jobs.
Result<std::vector<Host>> parse_hosts(std::string_view text, bool names_count = false);

// A host listed twice gets the sum of its slots and the first name. This machine is one host, under all its names:
// ranks that share memory must agree on which ranks do.
Status merge_host(std::vector<Host>& hosts, Host host, bool names_count = false);

// Without network queries: by name, by /etc/hosts and by the addresses of this machine's interfaces.
bool is_local(const Host& host);

// "a:2, b:4"; of a long list, the first few.
std::string describe(const std::vector<Host>& hosts);

// One host per line: HOST, HOST:N, HOST slots=N; also user@host and [IPv6]. Comments (#) and empty lines are skipped,
// max_slots=N is ignored.
Result<std::vector<Host>> read_hostfile(const std::string& path);

// One line per slot: repeated lines count as slots (PBS, LSF).
Result<std::vector<Host>> read_nodefile(const std::string& path);

// HOST SLOTS, and more columns that are ignored (Grid Engine).
Result<std::vector<Host>> read_pe_hostfile(const std::string& path);

// Ranks are assigned to the hosts in the given order, filling the slots of each host.
struct Slot {
  std::string host;  // as the user wrote it
  int rank = 0, size = 1;
  int local_rank = 0, local_size = 1;
  int cross_rank = 0, cross_size = 1;  // among the ranks with the same local rank, one per host
};

// Exactly `num_proc` slots; an error if the hosts have fewer.
Result<std::vector<Slot>> assign(const std::vector<Host>& hosts, int num_proc);

}  // namespace hvd::launcher
