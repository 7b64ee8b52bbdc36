// Which MPI an mpirun belongs to; they differ in their command lines. Thread rule: plain values and pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace hvd::launcher {

enum class MpiFlavour { open_mpi, spectrum, mpich, intel };

struct MpiVersion {
  MpiFlavour flavour = MpiFlavour::open_mpi;
  std::string number;  // "4.1.4"; empty: it does not say
  int major = 0;
};

// What `mpirun --version` printed; nothing when it is none of those above.
std::optional<MpiVersion> read_mpi_version(std::string_view printed);

std::string_view name_of(MpiFlavour flavour);     // "Open MPI"
std::string describe(const MpiVersion& version);  // "Open MPI 4.1.4"

// Open MPI and Spectrum MPI have one kind of launcher, MPICH and Intel MPI the other (Hydra). A library that was
// compiled for one kind does not work with the other.
bool is_open_mpi_kind(MpiFlavour flavour);

}  // namespace hvd::launcher
