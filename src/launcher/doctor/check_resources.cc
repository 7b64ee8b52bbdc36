#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <set>

#include "base/joined.h"
#include "launcher/doctor/checks.h"

namespace hvd::launcher {
namespace {

constexpr uint64_t kMiB = 1 << 20, kGiB = 1 << 30;
constexpr uint64_t kFewestFiles = 256, kUsualFiles = 1024, kFilesPerHost = 8;
constexpr uint64_t kUsualProcesses = 1024;
constexpr uint64_t kSmallShm = 512 * kMiB, kLittleMemory = kGiB;
constexpr int kOldestKernel[] = {3, 17};  // memfd_create

std::string size_text(uint64_t bytes) {
  if (bytes >= kGiB) return fmt::format("{:.1f} GiB", static_cast<double>(bytes) / static_cast<double>(kGiB));
  return fmt::format("{:.0f} MiB", static_cast<double>(bytes) / static_cast<double>(kMiB));
}

std::string limit_text(const std::optional<uint64_t>& limit) { return limit ? std::to_string(*limit) : "unlimited"; }

// A limit as a comparable number: no limit is the largest.
uint64_t as_number(const std::optional<uint64_t>& limit) { return limit.value_or(UINT64_MAX); }

template <class Number>
std::string range_text(Number least, Number most) {
  return least == most ? fmt::format("{}", least) : fmt::format("{} to {}", least, most);
}

bool is_too_old(const std::string& kernel) {
  const char* end = kernel.data() + kernel.size();
  int major = 0, minor = 0;
  auto [dot, error] = std::from_chars(kernel.data(), end, major);
  if (error != std::errc() || dot == end) return false;
  std::from_chars(dot + 1, end, minor);
  return major < kOldestKernel[0] || (major == kOldestKernel[0] && minor < kOldestKernel[1]);
}

void check_files(Check& check, const HostExam& host, size_t hosts) {
  uint64_t files = as_number(host.facts->resources.open_files);
  uint64_t wanted = std::max<uint64_t>(kUsualFiles, kFewestFiles + kFilesPerHost * hosts);
  if (files >= wanted) return;
  check.add(files < kFewestFiles ? Severity::fail : Severity::warn, {host.name},
            fmt::format("a process may open {} files; a job on {} hosts may need {}", files, hosts, wanted),
            "raise it: ulimit -n 65536, nofile in /etc/security/limits.conf, or docker run --ulimit nofile=65536");
}

void check_shm(const std::vector<const HostExam*>& hosts, std::vector<Finding>& findings) {
  Check check("shm", findings);
  uint64_t least = UINT64_MAX;
  for (const HostExam* host : hosts) {
    const auto& shm = host->facts->resources.shm;
    std::string advice =
        "horovod does not use it, but data loaders and NCCL do: docker run --shm-size=8g or --ipc=host";
    if (!shm) {
      check.warn(host->name, "there is no /dev/shm", advice);
    } else if (*shm < kSmallShm) {
      check.warn(host->name, fmt::format("/dev/shm has only {}", size_text(*shm)), advice);
    } else {
      least = std::min(least, *shm);
    }
  }
  check.otherwise(names_of(hosts), [&] { return fmt::format("/dev/shm has {}", size_text(least)); });
}

void check_cpus(const std::vector<const HostExam*>& hosts, std::vector<Finding>& findings) {
  Check check("cpus", findings);
  int32_t least = INT32_MAX, most = 0;
  for (const HostExam* host : hosts) {
    const Resources& found = host->facts->resources;
    least = std::min(least, found.cores);
    most = std::max(most, found.cores);
    if (found.quota && *found.quota < found.cores)
      check.warn(
          host->name,
          fmt::format("it has {} cores, but its control group allows {:.1f} cores of CPU time", found.cores,
                      *found.quota),
          "give the container more (docker run --cpus), or set OMP_NUM_THREADS to the number that each rank can use");
    if (host->slots > found.cores)
      check.warn(host->name, fmt::format("{} slots on {} cores", host->slots, found.cores),
                 "with more ranks than cores, ranks slow each other down: use as many slots as cores, or accelerators");
  }
  check.otherwise(names_of(hosts), [&] {
    return fmt::format("{} core{}{}", range_text(least, most), most == 1 ? "" : "s", hosts.size() > 1 ? " each" : "");
  });
}

void check_memory(const std::vector<const HostExam*>& hosts, std::vector<Finding>& findings) {
  Check check("memory", findings);
  uint64_t least = UINT64_MAX;
  for (const HostExam* host : hosts) {
    uint64_t memory = host->facts->resources.memory;
    least = std::min(least, memory);
    if (memory < kLittleMemory)
      check.warn(host->name, fmt::format("only {} of memory are free", size_text(memory)),
                 "stop other programs there, or raise the memory limit of the container");
  }
  check.otherwise(names_of(hosts),
                  [&] { return fmt::format("{}{} free", hosts.size() > 1 ? "at least " : "", size_text(least)); });
}

void check_kernel(const std::vector<const HostExam*>& hosts, std::vector<Finding>& findings) {
  Check check("kernel", findings);
  std::set<std::string> kernels, machines;
  for (const HostExam* host : hosts) {
    const Resources& found = host->facts->resources;
    kernels.insert(found.kernel);
    machines.insert(found.machine);
    if (is_too_old(found.kernel))
      check.fail(host->name, fmt::format("Linux {} has no memfd_create", found.kernel),
                 "horovod needs Linux 3.17 or later");
  }
  if (machines.size() > 1)
    check.add(Severity::warn, names_of(hosts), fmt::format("the processors differ: {}", joined(machines, ", ")),
              "results may differ in their last bits between hosts; use one kind");
  check.otherwise(names_of(hosts),
                  [&] { return fmt::format("Linux {} {}", joined(kernels, ", "), joined(machines, ", ")); });
}

}  // namespace

void check_limits(const std::vector<const HostExam*>& hosts, std::vector<Finding>& findings) {
  Check check("limits", findings);
  for (const HostExam* host : hosts) {
    const Resources& found = host->facts->resources;
    check_files(check, *host, hosts.size());
    if (found.has_rdma && found.locked_memory)
      check.warn(host->name,
                 fmt::format("it has RDMA devices, but a process may lock only {}", size_text(*found.locked_memory)),
                 "raise it: memlock unlimited in /etc/security/limits.conf, or docker run --ulimit memlock=-1");
    if (as_number(found.processes) < kUsualProcesses)
      check.warn(host->name, fmt::format("a user may run {} processes and threads", *found.processes),
                 "raise it: ulimit -u, nproc in /etc/security/limits.conf, or docker run --pids-limit");
  }
  check.otherwise(names_of(hosts), [&] {
    auto least = [&](auto member) {
      std::optional<uint64_t> lowest;
      for (const HostExam* host : hosts) {
        const auto& limit = host->facts->resources.*member;
        if (limit && *limit < as_number(lowest)) lowest = limit;
      }
      return lowest;
    };
    auto locked = least(&Resources::locked_memory);
    return fmt::format("open files {}, locked memory {}, processes {}", limit_text(least(&Resources::open_files)),
                       locked ? size_text(*locked) : "unlimited", limit_text(least(&Resources::processes)));
  });
}

void check_machines(const std::vector<const HostExam*>& hosts, std::vector<Finding>& findings) {
  check_shm(hosts, findings);
  check_cpus(hosts, findings);
  check_memory(hosts, findings);
  check_kernel(hosts, findings);
}

}  // namespace hvd::launcher
