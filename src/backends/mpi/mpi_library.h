// The MPI plugin: loads it and makes sure that what runs is the MPI that it was compiled for. shim/hvd_mpi_shim.h is
// the table of functions that it gives; nothing here needs MPI to build. Thread rule: any thread, once loaded.
#pragma once

#include <string>

#include "backends/mpi/shim/hvd_mpi_shim.h"
#include "base/status.h"

namespace hvd {

class MpiLibrary {
 public:
  // Does not start MPI. The plugin stays loaded for the life of the process, as MPI itself must.
  static Result<MpiLibrary> load(const std::string& path);

  const hvd_mpi_api* operator->() const { return api_; }
  const std::string& version() const { return version_; }  // all that MPI says of itself
  std::string short_version() const;                       // its first words: "Open MPI v4.1.4"
  bool finalize_can_hang() const;                          // MPICH before 4.2 over UCX: see MpiSession::leave
  bool speaks_pmi_1() const;                               // to the program that started it
  // What the code of a failed call means; ok for none.
  Status check(int code, const char* call) const;

 private:
  MpiLibrary(const hvd_mpi_api* api, std::string version) : api_(api), version_(std::move(version)) {}

  const hvd_mpi_api* api_;
  std::string version_;
};

}  // namespace hvd
