// A job as mpirun or jsrun have to be told it, and what they are told. Thread rule: plain values.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "launcher/command_line/tunables.h"
#include "launcher/hosts/hosts.h"

namespace hvd {

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

}  // namespace hvd
