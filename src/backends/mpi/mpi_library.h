// The MPI plugin: loads it and checks that the running MPI is the one it was compiled for. shim/hvd_mpi_shim.h is its
// table of functions; nothing here needs MPI to build. Thread rule: any thread, once loaded.
#pragma once

#include <string>

#include "backends/mpi/shim/hvd_mpi_shim.h"
#include "base/status.h"

namespace hvd {

class MpiLibrary {
 public:
  // Does not start MPI. Like MPI itself, the plugin stays loaded for the life of the process.
  static Result<MpiLibrary> load(const std::string& path);

  const hvd_mpi_api* operator->() const { return api_; }
  const std::string& version() const { return version_; }  // MPI's full version text
  std::string short_version() const;                       // its first words: "Open MPI v4.1.4"
  bool finalize_can_hang() const;                          // MPICH before 4.2 over UCX: see MpiSession::leave
  bool speaks_pmi_1() const;                               // with the program that started it
  // Converts the code of a failed call; ok for success.
  Status check(int code, const char* call) const;

 private:
  MpiLibrary(const hvd_mpi_api* api, std::string version) : api_(api), version_(std::move(version)) {}

  const hvd_mpi_api* api_;
  std::string version_;
};

}  // namespace hvd
