#include "launcher/mpi/mpi_job.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <iterator>

#include "base/joined.h"
#include "launcher/processes/shell_words.h"
#include "launcher/ssh/ssh.h"
#include "launcher/workers/binding.h"
#include "launcher/workers/environment.h"

namespace hvd::launcher {
namespace {

constexpr std::string_view kMcaPrefix = "OMPI_MCA_";
// Variables of MPI itself, which mpirun and its ranks set and forward on their own.
constexpr std::string_view kOfMpi[] = {"OMPI_", "PMIX_", "PRTE_", "PMI_", "PMI2_", "HYDRA_", "HYDI_", "MPI_LOCAL"};
constexpr std::string_view kPlace[] = {
    "HOROVOD_RANK",        "HOROVOD_SIZE",          "HOROVOD_LOCAL_RANK",
    "HOROVOD_LOCAL_SIZE",  "HOROVOD_CROSS_RANK",    "HOROVOD_CROSS_SIZE",
    "HOROVOD_HOSTNAME",    "HOROVOD_ELASTIC",       "HOROVOD_GLOO_RENDEZVOUS_ADDR",
    "HOROVOD_WORKER_ID",   "_HOROVOD_REPORT",       "_HOROVOD_REPORT_STORE",
    "_HOROVOD_SECRET_KEY", "_HOROVOD_TLS_IDENTITY", "HOROVOD_GLOO_RENDEZVOUS_PORT",
};

bool is_identifier(std::string_view name) {
  auto is_allowed = [](unsigned char c) { return std::isalnum(c) || c == '_'; };
  return !std::isdigit(static_cast<unsigned char>(name[0])) && std::all_of(name.begin(), name.end(), is_allowed);
}

bool is_exportable(std::string_view name) {
  return is_identifier(name) && !is_rank_variable(name) && name != "_" && name != "SHLVL" &&
         std::none_of(std::begin(kOfMpi), std::end(kOfMpi),
                      [&](std::string_view each) { return name.starts_with(each); });
}

std::vector<Host> used_hosts(const std::vector<Host>& hosts, const std::vector<Slot>& slots) {
  std::vector<Host> used;
  for (Host host : hosts) {
    host.slots = static_cast<int>(
        std::count_if(slots.begin(), slots.end(), [&](const Slot& slot) { return slot.host == host.name; }));
    if (host.slots > 0) used.push_back(std::move(host));
  }
  return used;
}

// mpirun logs in to all hosts as one user.
Result<std::string> user_of(const std::vector<Host>& hosts) {
  std::string user;
  bool is_first = true;
  for (const Host& host : hosts) {
    if (is_local(host)) continue;
    if (!is_first && host.user != user)
      return invalid_argument(
          fmt::format("mpirun logs in to all hosts as one user, but {} is named with '{}' and others with '{}'; "
                      "use ~/.ssh/config, or the built-in launcher (--gloo)",
                      host.name, host.user, user));
    user = host.user;
    is_first = false;
  }
  return user;
}

// Options for ssh, unless it is replaced by another program.
void add_remote_shell(const Options& options, char* const* environment, const std::string& user, MpiJob& job) {
  Ssh ssh = ssh_of(options, environment, 10);
  bool is_chosen_for_mpi = job.mca_variables.contains("plm_rsh_agent");
  if (find_variable(environment, "HOROVOD_SSH_COMMAND") != nullptr) job.remote_shell = ssh.command;
  if (!ssh.takes_options) return;
  std::vector<std::string>& words = job.remote_shell_args;
  if (!is_chosen_for_mpi) words = {"-o", "BatchMode=yes"};  // a prompt would wait forever
  if (ssh.strict) words.insert(words.end(), {"-o", "StrictHostKeyChecking=yes"});
  if (ssh.port) words.insert(words.end(), {"-p", std::to_string(*ssh.port)});
  if (!ssh.identity_file.empty()) words.insert(words.end(), {"-i", ssh.identity_file});
  if (!user.empty()) words.insert(words.end(), {"-l", user});
}

void add_variables(const Options& options, char* const* environment, MpiJob& job) {
  job.variables = options.variables;
  if (!options.network_interfaces.empty()) {
    std::string names = joined(options.network_interfaces, ",");
    set_variable(job.variables, "HOROVOD_GLOO_IFACE", options.network_interfaces.front());
    set_variable(job.variables, "HOROVOD_NETWORK_INTERFACES", names);
    set_variable(job.variables, "NCCL_SOCKET_IFNAME", names);
  }
  // The number of cores is known only for this machine.
  if (job.hosts.size() > 1 || !is_local(job.hosts[0])) return;
  for (auto& [name, value] : thread_defaults(core_count(), job.num_proc))
    if (find_variable(environment, name) == nullptr) set_variable(job.variables, name, value);
}

// "10.77.0.0/24" of 10.77.0.1
std::string network_text(const InterfaceAddress& address) {
  IpAddress network = address.ip;
  for (int bit = address.prefix; bit < 32; ++bit)
    network.bytes[static_cast<size_t>(bit / 8)] &= static_cast<uint8_t>(~(0x80 >> bit % 8));
  return fmt::format("{}/{}", to_text(network), address.prefix);
}

}  // namespace

bool is_rank_variable(std::string_view name) {
  return std::find(std::begin(kPlace), std::end(kPlace), name) != std::end(kPlace);
}

Result<MpiJob> make_mpi_job(const Options& options, const std::vector<Slot>& slots, char* const* environment) {
  MpiJob job{.hosts = used_hosts(options.hosts, slots),
             .num_proc = options.num_proc,
             .command = options.command,
             .bind_to = options.bind_to,
             .interfaces = options.network_interfaces,
             .tcp = options.tcp,
             .prefix_timestamp = options.prefix_timestamp,
             .output_folder = options.output_filename};
  auto mpi_args = split_shell_words(options.mpi_args);
  if (!mpi_args.ok()) return invalid_argument(fmt::format("--mpi-args: {}", mpi_args.status().message()));
  auto binding_args = split_shell_words(options.binding_args);
  if (!binding_args.ok()) return invalid_argument(fmt::format("--binding-args: {}", binding_args.status().message()));
  job.mpi_args = std::move(*mpi_args);
  job.binding_args = std::move(*binding_args);
  auto user = user_of(job.hosts);
  if (!user.ok()) return user.status();
  for (char* const* entry = environment; *entry; ++entry) {
    std::string_view text = *entry;
    if (text.starts_with(kMcaPrefix))
      job.mca_variables.emplace(text.substr(kMcaPrefix.size(), text.find('=') - kMcaPrefix.size()));
  }
  for (const auto& [name, value] : forwarded_variables(environment, {.name = "", .user = *user}))
    if (is_exportable(name)) job.inherited.push_back(name);
  if (auto all = read_interfaces(); all.ok()) job.networks = networks_of(job.interfaces, *all);
  bool is_remote = std::any_of(job.hosts.begin(), job.hosts.end(), [](const Host& host) { return !is_local(host); });
  if (is_remote) add_remote_shell(options, environment, *user, job);
  add_variables(options, environment, job);
  return job;
}

std::vector<std::string> networks_of(const std::vector<std::string>& names, const std::vector<InterfaceAddress>& all) {
  std::vector<std::string> networks;
  bool has_all = true;
  for (const std::string& name : names) {
    bool has_name = false;
    for (const InterfaceAddress& address : all) {
      if (address.interface != name) continue;
      has_name = true;
      if (!address.ip.is_v6) networks.push_back(network_text(address));
    }
    has_all = has_all && has_name;
  }
  return has_all || networks.empty() ? names : networks;
}

}  // namespace hvd::launcher
