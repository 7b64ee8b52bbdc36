// The command line of horovodrun. Thread rule: plain value, parsed once.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "launcher/command_line/tunables.h"
#include "launcher/hosts/allocation.h"
#include "launcher/hosts/hosts.h"

namespace hvd::launcher {

struct Options {
  enum class Action {
    run,
    show_help,
    show_version,
    check_build,
    build_mpi,
    doctor,
    report,
    top,
    dump,
    explain,
    agent,
    dry_run
  };
  Action action = Action::run;
  std::string help;  // with show_help: the text; with dry_run: the job as JSON

  int num_proc = 0;
  std::vector<Host> hosts;
  std::vector<std::string> command;
  bool verbose = false;
  bool json = false;                 // of check_build, doctor and report
  std::string explained;             // a dump; with explain
  std::string report, report_html;   // a timeline to report on, and a file for the page
  std::optional<int> start_timeout;  // seconds
  bool disable_cache = false;        // has no effect: nothing is cached between jobs
  std::string bind_to;               // "", "core", "numa" or "none"
  bool torch_env = false;            // also set the variables of torchrun
  bool gloo = false, mpi = false, jsrun = false;
  std::string mpi_args, binding_args;
  bool tcp = false;
  bool tls = false;
  std::vector<std::string> network_interfaces;

  // Reaching hosts: by ssh, or by agents that connect to us.
  std::string ssh_identity_file;
  std::optional<int> ssh_port;
  bool ssh_strict = false;    // known host keys only
  bool agent = false;         // this process is an agent
  std::string rendezvous;     // host:port where launcher and agents connect
  std::string key_file;       // of the key that they share
  std::optional<int> agents;  // the launcher waits for this many instead of using ssh

  // Output.
  std::string output_filename;  // actually a directory; named like the option
  bool prefix_timestamp = false;

  // Elastic jobs.
  std::optional<int> min_num_proc, max_num_proc, slots_per_host, elastic_timeout, reset_limit;
  std::optional<std::pair<int, int>> blacklist_cooldown;  // seconds
  std::string host_discovery_script;

  Variables variables;  // of the workers
  std::vector<std::string> warnings;
};

// An elastic job: --host-discovery-script or --min-np was given.
bool is_elastic(const Options& options);

// `arguments` without the program's name. Errors are messages for the user. The environment is searched for a
// scheduler's allocation; `lookup` is for tests.
Result<Options> parse_options(const std::vector<std::string>& arguments, const Lookup& lookup);
Result<Options> parse_options(const std::vector<std::string>& arguments);

}  // namespace hvd::launcher
