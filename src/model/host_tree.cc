#include "model/host_tree.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace hvd {

HostPlace place_of_host(int32_t host, int32_t hosts, int32_t fan_out) {
  assert(host >= 0 && host < hosts && fan_out >= 1);
  HostPlace place{.end = hosts};
  for (int32_t top = 0;; place.depth++) {
    int32_t below = place.end - top - 1;
    int32_t parts = std::min(fan_out, below);
    int32_t smaller = parts > 0 ? below / parts : 0, larger_parts = below - smaller * parts;
    auto start_of = [&](int32_t part) { return top + 1 + part * smaller + std::min(part, larger_parts); };
    if (top == host) {
      for (int32_t part = 0; part < parts; part++) place.children.push_back(start_of(part));
      return place;
    }
    int32_t part = 0;
    while (part + 1 < parts && start_of(part + 1) <= host) part++;
    if (part + 1 < parts) place.end = start_of(part + 1);
    place.parent = std::exchange(top, start_of(part));
  }
}

std::vector<std::vector<int32_t>> ranks_below(int32_t host, const std::vector<std::vector<int32_t>>& ranks,
                                              int32_t fan_out) {
  int32_t hosts = static_cast<int32_t>(ranks.size());
  std::vector<std::vector<int32_t>> below;
  for (int32_t rank : ranks[static_cast<size_t>(host)]) below.push_back({rank});
  for (int32_t child : place_of_host(host, hosts, fan_out).children) {
    std::vector<int32_t>& subtree = below.emplace_back();
    for (int32_t member = child; member < place_of_host(child, hosts, fan_out).end; member++) {
      const std::vector<int32_t>& local = ranks[static_cast<size_t>(member)];
      subtree.insert(subtree.end(), local.begin(), local.end());
    }
    std::sort(subtree.begin(), subtree.end());
  }
  return below;
}

}  // namespace hvd
