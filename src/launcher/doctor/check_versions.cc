#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/joined.h"
#include "launcher/doctor/checks.h"

namespace hvd::launcher {
namespace {

using Versions = std::map<std::string, std::vector<std::string>>;  // hosts by version

// "3.11.2" -> "3.11": the version that packages are built for.
std::string minor_version(const std::string& version) {
  size_t second = version.find('.', version.find('.') + 1);
  return version.substr(0, second);
}

std::vector<std::string> all_but_most_common(const Versions& versions) {
  auto most = std::max_element(versions.begin(), versions.end(), [](const auto& one, const auto& other) {
    return one.second.size() < other.second.size();
  });
  std::vector<std::string> hosts;
  for (auto it = versions.begin(); it != versions.end(); ++it)
    if (it != most) hosts.insert(hosts.end(), it->second.begin(), it->second.end());
  return hosts;
}

void compare(Check& check, const std::string& what, const Versions& versions, Severity severity,
             const std::string& advice) {
  if (versions.size() < 2) return;
  std::vector<std::string> parts;
  for (const auto& [version, hosts] : versions) {
    constexpr size_t kMostNames = 4;
    std::vector<std::string> names(hosts.begin(),
                                   hosts.begin() + static_cast<long>(std::min(hosts.size(), kMostNames)));
    if (hosts.size() > kMostNames) names.push_back(fmt::format("{} more", hosts.size() - kMostNames));
    parts.push_back(fmt::format("{} on {}", version, joined(names, ", ")));
  }
  check.add(severity, all_but_most_common(versions), fmt::format("{} differs: {}", what, joined(parts, "; ")), advice);
}

void check_python(Check& check, const std::string& host, const Installation& found) {
  if (found.python.empty()) {
    check.warn(host, "there is no Python beside horovodrun or in PATH", "put the one that the training uses in PATH");
  } else if (found.python_version.empty()) {
    check.warn(host, fmt::format("{} did not print its version", found.python),
               fmt::format("check the output of: {} --version", found.python));
  } else if (found.package.empty()) {
    check.warn(host, fmt::format("{} does not find the package horovod", found.python),
               fmt::format("{} -m pip install horovod=={}, or put an environment that has it in PATH", found.python,
                           found.horovodrun));
  } else if (found.package != found.horovodrun) {
    check.warn(
        host,
        fmt::format("horovodrun is {}, but the package of {} is {}", found.horovodrun, found.python, found.package),
        "use the horovodrun of the environment that the training runs in");
  }
  if (!found.library_error.empty())
    check.fail(host,
               found.library.empty() ? found.library_error
                                     : fmt::format("{} cannot be used: {}", found.library, found.library_error),
               "reinstall horovod there");
}

}  // namespace

void check_versions(const std::vector<const HostExam*>& hosts, std::vector<Finding>& findings) {
  Check check("versions", findings);
  Versions python, python_minor, package, program, library;
  for (const HostExam* host : hosts) {
    const Installation& found = host->facts->installation;
    check_python(check, host->name, found);
    program[found.horovodrun].push_back(host->name);
    if (!found.package.empty()) package[found.package].push_back(host->name);
    if (!found.library_version.empty()) library[found.library_version].push_back(host->name);
    if (found.python_version.empty()) continue;
    python[found.python_version].push_back(host->name);
    python_minor[minor_version(found.python_version)].push_back(host->name);
  }
  std::string same = "install the same version on all hosts";
  compare(check, "horovodrun", program, Severity::fail, same);
  compare(check, "the package horovod", package, Severity::fail, same);
  compare(check, "libhorovod.so", library, Severity::fail, same);
  bool is_minor = python_minor.size() > 1;
  compare(check, "Python", python, is_minor ? Severity::fail : Severity::warn,
          is_minor ? "use the same environment on all hosts: another Python version may not be able to read pickles"
                   : same);
  check.otherwise(names_of(hosts), [&] {
    const Installation& found = hosts.front()->facts->installation;
    return fmt::format("Python {}, horovod {}", found.python_version, found.package);
  });
}

}  // namespace hvd::launcher
