// MPICH and Intel MPI, whose mpirun is Hydra.
#include <fmt/core.h>

#include <algorithm>

#include "base/joined.h"
#include "launcher/mpi/mpi_command.h"

namespace hvd::launcher {
namespace {

class HydraCommand {
 public:
  HydraCommand(const MpiVersion& version, const std::string& program, const MpiJob& job)
      : is_intel_(version.flavour == MpiFlavour::intel), job_(job) {
    start_.variables = job.variables;
    add({program});
    add_binding();
    add_network();
    add_remote_shell();
    add_output();
    add_variables();
    if (is_intel_) {
      add_ranks_of_intel();
    } else {
      add({"-np", std::to_string(job.num_proc), "-hosts", joined(host_words(true), ",")});
      add(job.mpi_args);
      add(job.command);
    }
  }

  MpiStart start() { return std::move(start_); }

 private:
  void add(const std::vector<std::string>& words) {
    start_.command.insert(start_.command.end(), words.begin(), words.end());
  }

  void set(const char* name, std::string value) { set_variable(start_.variables, name, std::move(value)); }

  std::vector<std::string> host_words(bool with_slots) const {
    std::vector<std::string> words;
    for (const Host& host : job_.hosts)
      words.push_back(with_slots ? fmt::format("{}:{}", host.name, host.slots) : host.name);
    return words;
  }

  // Its -hosts takes no numbers: -ppn applies to all hosts; otherwise every host gets its own section of the command
  // line.
  void add_ranks_of_intel() {
    int per_host = job_.hosts.front().slots;
    bool is_even = std::all_of(job_.hosts.begin(), job_.hosts.end() - 1,
                               [&](const Host& host) { return host.slots == per_host; }) &&
                   job_.hosts.back().slots <= per_host;
    if (is_even) {
      add({"-n", std::to_string(job_.num_proc), "-ppn", std::to_string(per_host), "-hosts",
           joined(host_words(false), ",")});
      add(job_.mpi_args);
      return add(job_.command);
    }
    add(job_.mpi_args);
    for (const Host& host : job_.hosts) {
      if (&host != &job_.hosts.front()) add({":"});
      add({"-host", host.name, "-n", std::to_string(host.slots)});
      add(job_.command);
    }
  }

  void add_binding() {
    if (!job_.binding_args.empty()) return add(job_.binding_args);
    bool is_free = job_.bind_to.empty() || job_.bind_to == "none";
    if (!is_intel_) return add({"-bind-to", is_free ? "none" : job_.bind_to});
    if (is_free) return set("I_MPI_PIN", "off");
    set("I_MPI_PIN_DOMAIN", job_.bind_to);
  }

  void add_network() {
    if (job_.interfaces.empty()) return;
    add({"-iface", job_.interfaces.front()});  // it accepts only one
    if (job_.interfaces.size() > 1)
      start_.warnings.push_back(fmt::format("this mpirun supports only one interface: {}", job_.interfaces.front()));
  }

  void add_remote_shell() {
    std::vector<std::string> arguments = job_.remote_shell_args;
    if (!job_.remote_shell.empty()) {
      add({is_intel_ ? "-bootstrap" : "-launcher", "ssh", is_intel_ ? "-bootstrap-exec" : "-launcher-exec",
           job_.remote_shell.front()});
      arguments.insert(arguments.begin(), job_.remote_shell.begin() + 1, job_.remote_shell.end());
    }
    if (!arguments.empty())
      set(is_intel_ ? "I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS" : "HYDRA_LAUNCHER_EXTRA_ARGS", joined(arguments, " "));
  }

  void add_output() {
    add({"-prepend-rank"});
    if (job_.prefix_timestamp) start_.warnings.push_back("this mpirun cannot prefix lines with the time");
    if (job_.output_folder.empty()) return;
    add({"-outfile-pattern", job_.output_folder + "/rank.%r/stdout", "-errfile-pattern",
         job_.output_folder + "/rank.%r/stderr"});
  }

  void add_variables() {
    std::string names = joined(exported_names(job_), ",");
    if (!names.empty()) add({"-genvlist", names});
  }

  bool is_intel_;
  const MpiJob& job_;
  MpiStart start_;
};

}  // namespace

MpiStart hydra_command(const MpiVersion& version, const std::string& program, const MpiJob& job) {
  return HydraCommand(version, program, job).start();
}

}  // namespace hvd::launcher
