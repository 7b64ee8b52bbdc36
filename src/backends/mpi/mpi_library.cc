#include "backends/mpi/mpi_library.h"

#include <dlfcn.h>
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstdio>

namespace hvd {
namespace {

using Entry = const hvd_mpi_api* (*)();

constexpr const char* kBuildAgain = "build it again with horovodrun --build-mpi";

// Intel's and Cray's MPI are based on MPICH and share its handles.
bool is_for(std::string_view compiled_for, std::string_view version) {
  if (compiled_for == "Open MPI") return version.starts_with("Open MPI") || version.starts_with("IBM Spectrum MPI");
  return compiled_for != "MPICH" || !version.starts_with("Open MPI");
}

}  // namespace

// The symbols stay local: a script may load another MPI, for example with mpi4py, whose functions have the same names.
Result<MpiLibrary> MpiLibrary::load(const std::string& path) {
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return Status(Code::invalid_argument, fmt::format("cannot load the MPI plugin: {}; {}", ::dlerror(), kBuildAgain));
  }
  auto entry = reinterpret_cast<Entry>(::dlsym(library, HVD_MPI_ENTRY));
  const hvd_mpi_api* api = entry != nullptr ? entry() : nullptr;
  if (api == nullptr || api->version != HVD_MPI_API_VERSION || api->struct_size < sizeof(hvd_mpi_api)) {
    return Status(Code::invalid_argument,
                  fmt::format("{} is not an MPI plugin of this version of Horovod; {}", path, kBuildAgain));
  }
  std::array<char, HVD_MPI_TEXT> text{};
  if (api->version_text(text.data()) != 0)
    return Status(Code::unknown, fmt::format("MPI does not report its version ({})", path));
  MpiLibrary loaded(api, text.data());
  if (!is_for(api->compiled_for, loaded.version())) {
    return Status(Code::invalid_argument,
                  fmt::format("the MPI plugin {} was compiled for {}, but this process has already loaded {}; use the "
                              "mpicc that belongs to it: set HOROVOD_MPI_HOME, then {}",
                              path, api->compiled_for, loaded.short_version(), kBuildAgain));
  }
  return loaded;
}

// Open MPI: "Open MPI v4.1.4, package: ..."; MPICH: "MPICH Version:\t4.0.2\nMPICH Release date: ...".
std::string MpiLibrary::short_version() const {
  std::string text = version_.substr(0, version_.find_first_of(",\n"));
  std::replace(text.begin(), text.end(), '\t', ' ');
  text.resize(std::min(text.find_last_not_of(" \r") + 1, text.size()));
  return text;
}

bool MpiLibrary::finalize_can_hang() const {
  int major = 0, minor = 0;
  if (std::sscanf(version_.c_str(), "MPICH Version: %d.%d", &major, &minor) != 2) return false;
  return (major < 4 || (major == 4 && minor < 2)) && version_.find("ch4:ucx") != std::string::npos;
}

// MPICH reports its configuration. It uses PMI 1 unless another PMI was chosen there.
bool MpiLibrary::speaks_pmi_1() const {
  return version_.starts_with("MPICH Version:") && version_.find("--with-pmi") == std::string::npos;
}

Status MpiLibrary::check(int code, const char* call) const {
  if (code == 0) return {};
  std::array<char, HVD_MPI_TEXT> text{};
  api_->error_text(code, text.data());
  return {Code::unknown, fmt::format("{} failed: {} ({})", call, text.data(), short_version())};
}

}  // namespace hvd
