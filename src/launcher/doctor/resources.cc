#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>

#include "launcher/doctor/probe.h"
#include "launcher/workers/binding.h"

namespace hvd::launcher {
namespace {

constexpr uint64_t kNoMemoryLimit = uint64_t{1} << 60;  // version 1 control groups use such a number for "none"

std::string read_all(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::optional<double> read_first_number(const std::filesystem::path& path) {
  std::istringstream text(read_all(path));
  double number = 0;
  return text >> number ? std::optional(number) : std::nullopt;
}

std::optional<uint64_t> limit_of(__rlimit_resource resource) {
  rlimit limit{};
  if (::getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
  return limit.rlim_cur;
}

// "MemAvailable:   1234 kB"
uint64_t available_memory(const std::string& root) {
  std::istringstream text(read_all(root + "/proc/meminfo"));
  for (std::string name; text >> name;) {
    uint64_t kilobytes = 0;
    if (name == "MemAvailable:" && text >> kilobytes) return kilobytes << 10;
    text.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return 0;
}

struct GroupLimits {
  std::optional<double> cores;
  std::optional<double> memory;  // bytes left

  void add_cores(double count) { cores = std::min(cores.value_or(count), count); }
  void add_memory(std::optional<double> most, std::optional<double> used) {
    if (!most || !used || *most >= static_cast<double>(kNoMemoryLimit)) return;
    double left = std::max(0.0, *most - *used);
    memory = std::min(memory.value_or(left), left);
  }
};

// Version 2: all groups above ours count. In a container the path may be outside the mounted tree; then the root of the
// mount is our group.
void add_unified(const std::filesystem::path& mount, const std::string& group, GroupLimits& limits) {
  std::filesystem::path folder = mount / std::filesystem::path(group).relative_path();
  for (;; folder = folder.parent_path()) {
    std::istringstream text(read_all(folder / "cpu.max"));  // "max 100000" or "150000 100000"
    double quota = 0, period = 0;
    if (text >> quota >> period && period > 0) limits.add_cores(quota / period);
    limits.add_memory(read_first_number(folder / "memory.max"), read_first_number(folder / "memory.current"));
    if (folder == mount || !folder.has_relative_path()) return;
  }
}

// Version 1: a tree for each controller.
void add_separate(const std::filesystem::path& mount, GroupLimits& limits) {
  auto quota = read_first_number(mount / "cpu/cpu.cfs_quota_us");
  auto period = read_first_number(mount / "cpu/cpu.cfs_period_us");
  if (quota && period && *quota > 0 && *period > 0) limits.add_cores(*quota / *period);
  limits.add_memory(read_first_number(mount / "memory/memory.limit_in_bytes"),
                    read_first_number(mount / "memory/memory.usage_in_bytes"));
}

GroupLimits group_limits(const std::string& root) {
  GroupLimits limits;
  std::filesystem::path mount = root + "/sys/fs/cgroup";
  std::istringstream lines(read_all(root + "/proc/self/cgroup"));
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with("0::")) add_unified(mount, line.substr(3), limits);
  add_separate(mount, limits);
  return limits;
}

std::optional<uint64_t> size_of_shm() {
  struct statvfs status {};
  if (::statvfs("/dev/shm", &status) != 0) return std::nullopt;
  return static_cast<uint64_t>(status.f_blocks) * status.f_frsize;
}

bool has_entries(const std::string& folder) {
  std::error_code error;
  return std::filesystem::directory_iterator(folder, error) != std::filesystem::directory_iterator();
}

}  // namespace

Resources read_resources(const std::string& root) {
  utsname system{};
  ::uname(&system);
  GroupLimits group = group_limits(root);
  uint64_t memory = available_memory(root);
  if (group.memory) memory = std::min(memory, static_cast<uint64_t>(*group.memory));
  return {.kernel = system.release,
          .machine = system.machine,
          .cores = core_count(),
          .quota = group.cores,
          .memory = memory,
          .open_files = limit_of(RLIMIT_NOFILE),
          .locked_memory = limit_of(RLIMIT_MEMLOCK),
          .processes = limit_of(RLIMIT_NPROC),
          .has_rdma = has_entries(root + "/sys/class/infiniband"),
          .shm = size_of_shm()};
}

}  // namespace hvd::launcher
