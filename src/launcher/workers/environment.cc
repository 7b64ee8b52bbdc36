#include "launcher/workers/environment.h"

#include <fmt/core.h>
#include <limits.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>

#include "base/joined.h"
#include "launcher/workers/torch_environment.h"

namespace hvd::launcher {
namespace {

// These describe the login on this host, and are wrong on any other.
constexpr std::string_view kOfThisMachine[] = {
    "OLDPWD",
    "PWD",
    "HOSTNAME",
    "_HOROVOD_SECRET_KEY",
    "_HOROVOD_TLS_IDENTITY",
    "_HOROVOD_REPORT_STORE",
    "SSH_CLIENT",
    "SSH_TTY",
    "SSH_ASKPASS",
    "SSH_CONNECTION",
    "SSH_AUTH_SOCK",
    "XDG_RUNTIME_DIR",
    "XDG_SEAT",
    "XDG_VTNR",
    "DBUS_SESSION_BUS_ADDRESS",
    "XDG_SESSION_ID",
};
constexpr std::string_view kOfThisUser[] = {"HOME", "USER", "LOGNAME", "MAIL", "SHELL"};

template <class Names>
bool contains(const Names& names, std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

bool goes_to(const Host& host, std::string_view name) {
  if (name.starts_with("BASH_FUNC_") || name.ends_with("CUDA_VISIBLE_DEVICES")) return false;
  if (!host.user.empty() && contains(kOfThisUser, name)) return false;
  return !contains(kOfThisMachine, name);
}

// Calls `take` with the name and value of each entry.
template <class Take>
void for_each_variable(char* const* environment, const Take& take) {
  for (char* const* entry = environment; *entry; ++entry) {
    std::string_view text = *entry;
    size_t equals = text.find('=', 1);
    if (equals != std::string_view::npos) take(text.substr(0, equals), text.substr(equals + 1));
  }
}

}  // namespace

Variables job_variables(const Variables& tunables, const Meeting& meeting) {
  Variables all = tunables;
  all.emplace_back("HOROVOD_GLOO_RENDEZVOUS_ADDR", meeting.addresses);
  all.emplace_back("HOROVOD_GLOO_RENDEZVOUS_PORT", std::to_string(meeting.port));
  all.emplace_back("HOROVOD_CONTROLLER", "gloo");
  all.emplace_back("HOROVOD_CPU_OPERATIONS", "gloo");
  all.emplace_back("PYTHONUNBUFFERED", "1");
  all.emplace_back("_HOROVOD_SECRET_KEY", meeting.key.hex());
  if (!meeting.tls_identity.empty()) {
    all.emplace_back("HOROVOD_TLS", "1");
    all.emplace_back("_HOROVOD_TLS_IDENTITY", meeting.tls_identity);
  }
  if (!meeting.interfaces.empty()) {
    std::string names = joined(meeting.interfaces, ",");
    all.emplace_back("HOROVOD_GLOO_IFACE", meeting.interfaces.front());
    all.emplace_back("HOROVOD_NETWORK_INTERFACES", names);
    all.emplace_back("NCCL_SOCKET_IFNAME", names);
  }
  return all;
}

Variables rank_variables(const Slot& slot) {
  return {{"HOROVOD_HOSTNAME", slot.host},
          {"HOROVOD_RANK", std::to_string(slot.rank)},
          {"HOROVOD_SIZE", std::to_string(slot.size)},
          {"HOROVOD_LOCAL_RANK", std::to_string(slot.local_rank)},
          {"HOROVOD_LOCAL_SIZE", std::to_string(slot.local_size)},
          {"HOROVOD_CROSS_RANK", std::to_string(slot.cross_rank)},
          {"HOROVOD_CROSS_SIZE", std::to_string(slot.cross_size)}};
}

Variables rank_variables(const Slot& slot, const Slot& first, const Options& options) {
  Variables all = rank_variables(slot);
  if (options.torch_env) {
    Variables more = torch_rank_variables(slot, first);
    all.insert(all.end(), more.begin(), more.end());
  }
  return all;
}

Variables forwarded_variables(char* const* inherited, const Host& host) {
  Variables all;
  for_each_variable(inherited, [&](std::string_view name, std::string_view value) {
    if (goes_to(host, name)) all.emplace_back(name, value);
  });
  return all;
}

Variables thread_defaults(int cores, int local_size) {
  std::string threads = std::to_string(std::max(1, cores / std::max(1, local_size)));
  return {{"OMP_NUM_THREADS", threads}, {"MKL_NUM_THREADS", threads}, {"OPENBLAS_NUM_THREADS", threads}};
}

std::vector<std::string> merged_environment(const Variables& defaults, char* const* inherited,
                                            const std::vector<const Variables*>& layers) {
  std::map<std::string, std::string, std::less<>> all(defaults.begin(), defaults.end());
  for_each_variable(inherited, [&](std::string_view name, std::string_view value) {
    all.insert_or_assign(std::string(name), std::string(value));
  });
  for (const Variables* layer : layers)
    for (const auto& [name, value] : *layer) all[name] = value;
  std::vector<std::string> strings;
  strings.reserve(all.size());
  for (const auto& [name, value] : all) strings.push_back(fmt::format("{}={}", name, value));
  return strings;
}

const char* find_variable(char* const* environment, std::string_view name) {
  for (char* const* entry = environment; *entry; ++entry) {
    if (std::string_view(*entry).starts_with(name) && (*entry)[name.size()] == '=') return *entry + name.size() + 1;
  }
  return nullptr;
}

std::string current_directory() {
  std::array<char, PATH_MAX> directory{};
  return ::getcwd(directory.data(), directory.size()) == nullptr ? "" : directory.data();
}

Work work_on(const Host& host, const Options& options, const Meeting& meeting, const std::string& directory,
             bool is_here, int cores, int local_size) {
  Work work{.command = options.command, .bind_to = options.bind_to};
  if (!is_here) {
    work.directory = directory;
    work.variables = forwarded_variables(environ, host);
  }
  Variables own = job_variables(options.variables, meeting);
  work.variables.insert(work.variables.end(), own.begin(), own.end());
  work.defaults = thread_defaults(cores, local_size);
  if (meeting.torch) {
    Variables more = torch_job_variables(*meeting.torch);
    work.defaults.insert(work.defaults.end(), more.begin(), more.end());
  }
  return work;
}

}  // namespace hvd::launcher
