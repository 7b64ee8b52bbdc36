#include "elastic/placement.h"

#include <algorithm>
#include <climits>
#include <map>
#include <string_view>
#include <tuple>

namespace hvd::elastic {
namespace {

using Members = std::vector<const Worker*>;

struct HostMembers {
  std::string name;
  Members members;  // survivors first
  int lowest_rank = INT_MAX;
  size_t listed_at = 0;
};

// A late worker, whose generation is older, comes after the survivors of the newest one.
auto seniority(const Worker& worker, Generation newest) {
  bool survived = !worker.is_newcomer() && worker.generation == newest;
  return std::tuple(survived ? worker.rank : INT_MAX, worker.id);
}

Generation newest_of(std::span<const Worker* const> members) {
  Generation newest{0};
  for (const Worker* worker : members) newest = std::max(newest, worker->generation);
  return newest;
}

std::vector<HostMembers> group_by_host(std::span<const Worker* const> members, const std::vector<HostSlots>& order) {
  std::map<std::string_view, size_t> listed_at;
  for (const HostSlots& host : order) listed_at.emplace(host.name, listed_at.size());
  Generation newest = newest_of(members);
  std::map<std::string_view, size_t> index;
  std::vector<HostMembers> groups;
  for (const Worker* worker : members) {
    auto [at, is_new] = index.emplace(worker->host, groups.size());
    if (is_new) {
      auto listed = listed_at.find(worker->host);
      groups.push_back({.name = worker->host, .listed_at = listed == listed_at.end() ? order.size() : listed->second});
    }
    HostMembers& group = groups[at->second];
    group.members.push_back(worker);
    group.lowest_rank = std::min(group.lowest_rank, std::get<0>(seniority(*worker, newest)));
  }
  for (HostMembers& group : groups) {
    std::sort(group.members.begin(), group.members.end(),
              [&](const Worker* a, const Worker* b) { return seniority(*a, newest) < seniority(*b, newest); });
  }
  std::sort(groups.begin(), groups.end(), [](const HostMembers& a, const HostMembers& b) {
    return std::tuple(a.lowest_rank, a.listed_at, std::string_view(a.name)) <
           std::tuple(b.lowest_rank, b.listed_at, std::string_view(b.name));
  });
  return groups;
}

}  // namespace

AssignGeneration place(std::span<const Worker* const> members, const std::vector<HostSlots>& order) {
  std::vector<HostMembers> groups = group_by_host(members, order);
  AssignGeneration table;
  for (const HostMembers& group : groups) {
    int local_size = static_cast<int>(group.members.size());
    table.hosts.push_back({group.name, local_size});
    for (int local_rank = 0; local_rank < local_size; local_rank++) {
      table.places.push_back({.id = group.members[static_cast<size_t>(local_rank)]->id,
                              .host = group.name,
                              .rank = static_cast<int>(table.places.size()),
                              .size = static_cast<int>(members.size()),
                              .local_rank = local_rank,
                              .local_size = local_size});
    }
  }
  // Ranks with the same local rank, one per host that has one, form a row.
  std::map<int, int> row_sizes;
  for (Place& each : table.places) each.cross_rank = row_sizes[each.local_rank]++;
  for (Place& each : table.places) each.cross_size = row_sizes[each.local_rank];
  return table;
}

}  // namespace hvd::elastic
