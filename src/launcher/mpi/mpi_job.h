// A job as mpirun or jsrun have to be told it, and what they are told. Thread rule: plain values.
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
  std::vector<Host> hosts;  // with as many slots as they get ranks
  int num_proc = 0;
  std::vector<std::string> command;

  Variables variables;                 // of the ranks, that are set for this job
  std::vector<std::string> inherited;  // names of those that they have from here

  std::vector<std::string> mpi_args;      // the user's
  std::vector<std::string> binding_args;  // the user's, instead of what follows
  std::string bind_to;                    // "", "core", "numa" or "none"
  std::vector<std::string> interfaces;    // empty: whichever work
  std::vector<std::string> networks;      // the same for Open MPI: networks.h
  bool tcp = false;
  bool prefix_timestamp = false;
  std::string output_folder;

  std::vector<std::string> remote_shell;       // empty: what MPI takes by itself
  std::vector<std::string> remote_shell_args;  // ssh's options
  std::set<std::string> mca_variables;         // Open MPI's parameters that the environment sets: OMPI_MCA_btl
};

// What to execute in place of horovodrun.
struct MpiStart {
  std::vector<std::string> command;   // the program's name is its first word
  Variables variables;                // for the program's environment: no value stands on a command line
  std::vector<std::string> warnings;  // of options that have no meaning for it
};

// Without variables that depend on how the ranks find each other: meet_under_mpi.h. `environment` is horovodrun's own.
Result<MpiJob> make_mpi_job(const Options& options, const std::vector<Slot>& slots, char* const* environment);

// Variables that say what a process is in some job. Those of the surroundings must not reach the ranks of a new one.
bool is_rank_variable(std::string_view name);

// The names, or, if this host has only some of them, the networks of those: hosts then name theirs differently, and
// Open MPI fails on a host that does not have a name it was given. `all` are this host's.
std::vector<std::string> networks_of(const std::vector<std::string>& names, const std::vector<InterfaceAddress>& all);

}  // namespace hvd::launcher
