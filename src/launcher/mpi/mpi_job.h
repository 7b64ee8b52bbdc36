// The parts of a job that mpirun or jsrun need, and the resulting command. Thread rule: plain values.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "base/status.h"
#include "launcher/command_line/options.h"
#include "launcher/command_line/tunables.h"
#include "launcher/hosts/hosts.h"
#include "net/interfaces.h"

namespace hvd::launcher {

struct MpiJob {
  std::vector<Host> hosts;  // slots: the number of ranks
  int num_proc = 0;
  std::vector<std::string> command;

  Variables variables;                 // for the ranks, set for this job
  std::vector<std::string> inherited;  // names of variables that the ranks inherit

  std::vector<std::string> mpi_args;      // the user's
  std::vector<std::string> binding_args;  // the user's; they replace bind_to
  std::string bind_to;                    // "", "core", "numa" or "none"
  std::vector<std::string> interfaces;    // empty: any that work
  std::vector<std::string> networks;      // the same for Open MPI: networks.h
  bool tcp = false;
  bool prefix_timestamp = false;
  std::string output_folder;

  std::vector<std::string> remote_shell;       // empty: MPI's default
  std::vector<std::string> remote_shell_args;  // ssh's options
  std::set<std::string> mca_variables;         // Open MPI's parameters that the environment sets: OMPI_MCA_btl
};

// What to execute in place of horovodrun.
struct MpiStart {
  std::vector<std::string> command;   // the program's name is its first word
  Variables variables;                // variables for the program: no value appears on a command line
  std::vector<std::string> warnings;  // about options that have no effect with it
};

// Without variables that depend on how the ranks find each other: meet_under_mpi.h. `environment`: horovodrun's own.
Result<MpiJob> make_mpi_job(const Options& options, const std::vector<Slot>& slots, char* const* environment);

// Variables that describe a process of some job. They must not be forwarded to the ranks of a new job.
bool is_rank_variable(std::string_view name);

// Returns the names, or, if this host has only some of them, the networks of those: then hosts use different names, and
// Open MPI fails on a host that lacks one. `all`: the addresses of this host.
std::vector<std::string> networks_of(const std::vector<std::string>& names, const std::vector<InterfaceAddress>& all);

}  // namespace hvd::launcher
