// Finds the driver library and NCCL, without loading what the process does not have: a library that is loaded before
// the framework's own would take its place. Called at init (what could this rank use?), by the first GPU tensor (open),
// and by reports. Thread rule: any thread; what is open stays open for the life of the process.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "backends/nccl/cuda_api.h"
#include "backends/nccl/nccl_api.h"
#include "base/status.h"

namespace hvd {

// Where to look, from the knobs and the environment.
struct LibraryPlaces {
  std::string nccl_library;   // HOROVOD_NCCL_LIB: a file or a folder
  std::string nccl_home;      // HOROVOD_NCCL_HOME
  std::string cuda_home;      // HOROVOD_CUDA_HOME
  std::string library_path;   // LD_LIBRARY_PATH
  std::string conda_prefix;   // CONDA_PREFIX
  std::string site_packages;  // the folder that the package horovod is in; empty: not known
};

struct LibrarySearch {
  std::string driver;  // name or path for dlopen; empty: there is none
  std::string nccl;
  bool is_hip = false;
  bool nccl_is_loaded = false;  // by the framework
  int nccl_version = 0;         // 0: not known before it is loaded
  std::string reason;           // why it cannot be used; empty: it can
  bool is_usable() const { return reason.empty(); }
};

// `exists` tells whether there is such a file; a test replaces it.
LibrarySearch find_libraries(const LibraryPlaces& places, const std::function<bool(const std::string&)>& exists);
LibrarySearch find_libraries(const LibraryPlaces& places);
// The site-packages folder that holds this library, if it is installed as a package; else "".
std::string own_site_packages();

struct GpuLibraries {
  CudaApi cuda;
  NcclApi nccl;
  int nccl_version = 0;
};
// Loads both libraries. Not ok: says which one cannot be used, and why.
Result<GpuLibraries> open_libraries(const LibrarySearch& found);

// For nccl_built(): the version of the NCCL that would be used, 0 if none can be. Loads the library in a child process,
// unless this process has it.
int probe_nccl_version(const LibrarySearch& found);

}  // namespace hvd
