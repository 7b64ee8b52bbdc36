// The MPI implementation of an mpirun; their command lines differ. Thread rule: plain values and pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace hvd::launcher {

enum class MpiFlavour { open_mpi, spectrum, mpich, intel };

struct MpiVersion {
  MpiFlavour flavour = MpiFlavour::open_mpi;
  std::string number;  // "4.1.4"; empty: unknown
  int major = 0;
};

// Parses the output of `mpirun --version`; empty if it is none of those above.
std::optional<MpiVersion> read_mpi_version(std::string_view printed);

std::string_view name_of(MpiFlavour flavour);     // "Open MPI"
std::string describe(const MpiVersion& version);  // "Open MPI 4.1.4"

// Open MPI and Spectrum MPI have one kind of launcher, MPICH and Intel MPI the other (Hydra). A library that was
// compiled for one kind does not work with the other.
bool is_open_mpi_kind(MpiFlavour flavour);

}  // namespace hvd::launcher
