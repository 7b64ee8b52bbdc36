#include <fmt/core.h>

#include <algorithm>
#include <set>
#include <string_view>

#include "base/joined.h"
#include "launcher/mpi/mpi_command.h"

namespace hvd::launcher {
namespace {

constexpr size_t kManyHosts = 64;  // from here on, starting hosts through each other is too slow and hits limits of ssh

class OpenMpiCommand {
 public:
  OpenMpiCommand(const MpiVersion& version, const std::string& program, const MpiJob& job)
      : version_(version), job_(job) {
    add({program, "-np", std::to_string(job.num_proc), "-H", hosts()});
    add_binding();
    add_network();
    add_remote_shell();
    if (!is_given("--allow-run-as-root")) add({"--allow-run-as-root"});
    add_output();
    for (const std::string& name : exported_names(job))
      if (!is_exported_by_user(name)) add({"-x", name});
    add(job.mpi_args);
    add(job.command);
    start_.variables = job.variables;
  }

  MpiStart start() { return std::move(start_); }

 private:
  bool is_spectrum() const { return version_.flavour == MpiFlavour::spectrum; }
  bool has_prrte() const { return !is_spectrum() && version_.major >= 5; }

  void add(const std::vector<std::string>& words) {
    start_.command.insert(start_.command.end(), words.begin(), words.end());
  }

  // Options may have one dash or two.
  static bool is_option(std::string_view word, std::string_view option) {
    return word == option || (word.starts_with('-') && word.substr(1) == option) || word == option.substr(1);
  }

  bool is_given(std::string_view option) const {
    return std::any_of(job_.mpi_args.begin(), job_.mpi_args.end(),
                       [&](const std::string& word) { return is_option(word, option); });
  }

  // mpirun fails if a parameter is given twice.
  bool is_parameter_given(const std::string& name) const {
    if (job_.mca_variables.contains(name)) return true;
    for (size_t i = 0; i + 1 < job_.mpi_args.size(); ++i)
      for (const char* option : {"--mca", "--gmca", "--prtemca"})
        if (is_option(job_.mpi_args[i], option) && job_.mpi_args[i + 1] == name) return true;
    return false;
  }

  bool is_exported_by_user(const std::string& name) const {
    for (size_t i = 0; i + 1 < job_.mpi_args.size(); ++i)
      if (job_.mpi_args[i] == "-x" && job_.mpi_args[i + 1].substr(0, job_.mpi_args[i + 1].find('=')) == name)
        return true;
    return false;
  }

  void add_parameter(const std::string& name, const std::string& value) {
    if (!is_parameter_given(name)) add({"--mca", name, value});
  }
  void add_launcher_parameter(const std::string& name, const std::string& value) {  // of version 4, and of 5
    if (!has_prrte()) return add_parameter("plm_rsh_" + name, value);
    if (!is_parameter_given("plm_ssh_" + name) && !is_parameter_given("plm_rsh_" + name))
      add({"--prtemca", "plm_ssh_" + name, value});
  }

  std::string hosts() const {
    std::vector<std::string> words;
    for (const Host& host : job_.hosts) {
      bool is_ipv6 = host.name.find(':') != std::string::npos;
      words.push_back(fmt::format("{}{}{}:{}", is_ipv6 ? "[" : "", host.name, is_ipv6 ? "]" : "", host.slots));
    }
    return joined(words, ",");
  }

  void add_binding() {
    if (!job_.binding_args.empty()) return add(job_.binding_args);
    bool by_socket = is_spectrum() && job_.bind_to.empty();
    std::string what = by_socket ? "socket" : job_.bind_to.empty() ? "none" : job_.bind_to;
    if (!is_given("--bind-to")) add({"--bind-to", what});
    // horovodrun has already counted the slots; cores must not limit them.
    if (!is_given("--map-by")) add({"--map-by", by_socket ? "socket" : has_prrte() ? "slot:OVERSUBSCRIBE" : "slot"});
    if (by_socket && !is_given("--rank-by")) add({"--rank-by", "core"});
    if (!has_prrte() && !is_given("--oversubscribe")) add({"--oversubscribe"});
  }

  void add_network() {
    if (is_spectrum()) {
      if (job_.tcp && !is_given("--tcp")) add({"-tcp"});
    } else if (!has_prrte()) {  // openib is deprecated in version 4, and removed in 5
      add_parameter("pml", "ob1");
      add_parameter("btl", "^openib");
    }
    if (!job_.networks.empty()) {
      std::string names = joined(job_.networks, ",");
      add_parameter("btl_tcp_if_include", names);
      if (has_prrte()) {  // it accepts only names, not networks
        bool are_names = job_.networks == job_.interfaces;
        if (are_names && !is_parameter_given("prte_if_include")) add({"--prtemca", "prte_if_include", names});
      } else {
        add_parameter("oob_tcp_if_include", names);
      }
    }
    if (job_.hosts.size() >= kManyHosts) {
      add_launcher_parameter("no_tree_spawn", "true");
      add_launcher_parameter("num_concurrent", std::to_string(job_.hosts.size()));
    }
  }

  void add_remote_shell() {
    if (!job_.remote_shell.empty()) add_launcher_parameter("agent", joined(job_.remote_shell, " "));
    if (!job_.remote_shell_args.empty()) add_launcher_parameter("args", joined(job_.remote_shell_args, " "));
  }

  void add_output() {
    if (has_prrte()) {
      if (is_given("--output")) return;
      std::string wanted = "tag";
      if (job_.prefix_timestamp) wanted += ",timestamp";
      if (!job_.output_folder.empty()) wanted += fmt::format(",dir={}", job_.output_folder);
      return add({"--output", wanted});
    }
    if (!is_given("--tag-output")) add({"--tag-output"});
    if (job_.prefix_timestamp && !is_given("--timestamp-output")) add({"--timestamp-output"});
    if (!job_.output_folder.empty() && !is_given("--output-filename")) add({"--output-filename", job_.output_folder});
  }

  const MpiVersion& version_;
  const MpiJob& job_;
  MpiStart start_;
};

}  // namespace

MpiStart open_mpi_command(const MpiVersion& version, const std::string& program, const MpiJob& job) {
  return OpenMpiCommand(version, program, job).start();
}

std::vector<std::string> exported_names(const MpiJob& job) {
  std::set<std::string> names(job.inherited.begin(), job.inherited.end());
  for (const auto& [name, value] : job.variables) names.insert(name);
  return {names.begin(), names.end()};
}

MpiStart mpirun_command(const MpiVersion& version, const std::string& program, const MpiJob& job) {
  return is_open_mpi_kind(version.flavour) ? open_mpi_command(version, program, job)
                                           : hydra_command(version, program, job);
}

}  // namespace hvd::launcher
