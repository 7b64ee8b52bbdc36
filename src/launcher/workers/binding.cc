#include "launcher/workers/binding.h"

#include <fmt/core.h>
#include <sched.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <string>

#include "base/cores.h"

namespace hvd::launcher {
namespace {

constexpr int kMostNodes = 1024;

std::vector<int> cpus_of_node(int node, const std::vector<int>& own) {
  std::ifstream file(fmt::format("/sys/devices/system/node/node{}/cpulist", node));
  std::string text;
  std::getline(file, text);
  std::vector<int> cpus = parse_cpu_list(text);
  std::erase_if(cpus, [&](int cpu) { return std::find(own.begin(), own.end(), cpu) == own.end(); });
  return cpus;
}

}  // namespace

Binding::Binding(std::string_view kind) {
  std::vector<int> own = usable_cores();
  if (kind == "core")
    for (int cpu : own) units_.push_back({cpu});
  if (kind != "numa") return;
  for (int node = 0; node < kMostNodes; node++)
    if (auto cpus = cpus_of_node(node, own); !cpus.empty()) units_.push_back(std::move(cpus));
}

std::vector<int> Binding::cpus_of(int local_rank, int local_size) const {
  if (units_.empty()) return {};
  size_t count = units_.size(), workers = static_cast<size_t>(local_size), worker = static_cast<size_t>(local_rank);
  if (workers >= count) return units_[worker * count / workers];  // neighbours share
  std::vector<int> cpus;
  for (size_t unit = worker * count / workers; unit < (worker + 1) * count / workers; unit++)
    cpus.insert(cpus.end(), units_[unit].begin(), units_[unit].end());
  return cpus;
}

int core_count() { return std::max<int>(1, static_cast<int>(usable_cores().size())); }

std::vector<int> parse_cpu_list(std::string_view text) {
  std::vector<int> cpus;
  while (!text.empty()) {
    std::string_view part = text.substr(0, text.find(','));
    text.remove_prefix(std::min(part.size() + 1, text.size()));
    int first = 0, last = 0;
    auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), first);
    if (error != std::errc()) continue;
    last = first;
    if (end != part.data() + part.size() && *end == '-') std::from_chars(end + 1, part.data() + part.size(), last);
    for (int cpu = first; cpu <= last && cpu < CPU_SETSIZE; cpu++) cpus.push_back(cpu);
  }
  return cpus;
}

}  // namespace hvd::launcher
