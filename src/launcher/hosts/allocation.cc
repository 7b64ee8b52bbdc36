#include "launcher/hosts/allocation.h"

#include <fmt/core.h>

#include <algorithm>
#include <sstream>
#include <string_view>

#include "base/nodelist.h"
#include "base/number.h"
#include "launcher/hosts/hosts.h"

namespace hvd::launcher {
namespace {

using Hosts = std::vector<Host>;

class Environment {
 public:
  explicit Environment(const Lookup& lookup) : lookup_(lookup) {}
  std::string get(const char* name) const {
    const char* value = lookup_(name);
    return value ? value : "";
  }
  bool has(const char* name) const { return !get(name).empty(); }

 private:
  const Lookup& lookup_;
};

Result<Hosts> collect(const std::vector<std::pair<std::string, int>>& found) {
  Hosts hosts;
  for (const auto& [name, slots] : found) {
    auto host = parse_host(fmt::format("{}:{}", name, slots));
    if (!host.ok()) return host.status();
    if (Status status = merge_host(hosts, std::move(*host)); !status.ok()) return status;
  }
  return hosts;
}

// SLURM_TASKS_PER_NODE is set in salloc and sbatch, even if no number of tasks was requested.
Result<Hosts> read_slurm(const Environment& environment) {
  auto names = expand_nodelist(environment.get("SLURM_JOB_NODELIST"));
  if (!names.ok()) return names.status();
  std::vector<int> counts(names->size(), 1);
  if (environment.has("SLURM_TASKS_PER_NODE")) {
    auto expanded = expand_counts(environment.get("SLURM_TASKS_PER_NODE"));
    if (!expanded.ok()) return expanded.status();
    if (expanded->size() != names->size())
      return invalid_argument(
          fmt::format("SLURM_JOB_NODELIST names {} nodes, SLURM_TASKS_PER_NODE {}", names->size(), expanded->size()));
    counts = std::move(*expanded);
  }
  std::vector<std::pair<std::string, int>> found;
  for (size_t i = 0; i < counts.size(); ++i)
    if (counts[i] > 0) found.emplace_back((*names)[i], counts[i]);
  return collect(found);
}

// "a 4 b 2"
Result<Hosts> read_lsf_pairs(const std::string& text) {
  std::vector<std::pair<std::string, int>> found;
  std::istringstream words(text);
  for (std::string name, slots; words >> name;) {
    if (!(words >> slots)) return invalid_argument(fmt::format("cannot read LSB_MCPU_HOSTS='{}'", text));
    found.emplace_back(name, read_number<int>(slots).value_or(0));
  }
  return collect(found);
}

Result<Hosts> read_lsf(const Environment& environment) {
  auto read = [&]() -> Result<Hosts> {
    if (environment.has("LSB_DJOB_HOSTFILE")) return read_nodefile(environment.get("LSB_DJOB_HOSTFILE"));
    if (environment.has("LSB_MCPU_HOSTS")) return read_lsf_pairs(environment.get("LSB_MCPU_HOSTS"));
    std::vector<std::pair<std::string, int>> found;
    std::istringstream words(environment.get("LSB_HOSTS"));
    for (std::string name; words >> name;) found.emplace_back(name, 1);
    return collect(found);
  };
  auto hosts = read();
  // With IBM's CSM the first host runs the job's script; it has one slot and is not a compute node.
  if (hosts.ok() && environment.has("CSM_ALLOCATION_ID") && hosts->size() > 1 && hosts->front().slots == 1)
    hosts->erase(hosts->begin());
  return hosts;
}

// A host is listed once for every slot. On some sites Torque's nodes=2:ppn=4 lists it only once, and PBS_NUM_PPN is 4.
Result<Hosts> read_pbs(const Environment& environment) {
  auto hosts = read_nodefile(environment.get("PBS_NODEFILE"));
  if (!hosts.ok()) return hosts;
  int per_node = read_number<int>(environment.get("PBS_NUM_PPN")).value_or(1);
  bool once = std::all_of(hosts->begin(), hosts->end(), [](const Host& host) { return host.slots == 1; });
  if (once && per_node > 1)
    for (Host& host : *hosts) host.slots = per_node;
  return hosts;
}

struct Scheduler {
  const char* name;
  const char* sign;  // the variable that identifies the scheduler
  Result<Hosts> (*read)(const Environment&);
};

constexpr Scheduler kSchedulers[] = {
    {"Slurm", "SLURM_JOB_NODELIST", read_slurm},
    {"LSF", "LSB_JOBID", read_lsf},
    {"PBS", "PBS_NODEFILE", read_pbs},
    {"Grid Engine", "PE_HOSTFILE",
     [](const Environment& environment) { return read_pe_hostfile(environment.get("PE_HOSTFILE")); }},
};

}  // namespace

Result<std::optional<Allocation>> read_allocation(const Lookup& lookup) {
  Environment environment(lookup);
  for (const Scheduler& scheduler : kSchedulers) {
    if (!environment.has(scheduler.sign)) continue;
    auto hosts = scheduler.read(environment);
    if (!hosts.ok())
      return invalid_argument(
          fmt::format("the allocation of {}: {}; name the hosts with -H", scheduler.name, hosts.status().message()));
    if (hosts->empty()) continue;
    return std::optional(Allocation{scheduler.name, std::move(*hosts)});
  }
  return std::optional<Allocation>();
}

}  // namespace hvd::launcher
