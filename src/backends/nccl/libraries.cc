#include "backends/nccl/libraries.h"

#include <dlfcn.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>

namespace hvd {
namespace {

// One maker's libraries.
struct Family {
  bool is_hip;
  std::array<const char*, 2> drivers;
  const char* nccl;
  const char* package;  // folder of the pip package, in site-packages
  const char* maker;
};
constexpr std::array kFamilies{
    Family{false, {"libcuda.so.1", nullptr}, "libnccl.so.2", "nvidia/nccl/lib", "NVIDIA"},
    Family{true, {"libamdhip64.so.7", "libamdhip64.so.6"}, "librccl.so.1", "torch/lib", "AMD"},
};

// Where the loader looks by itself, as far as it can be known without asking it to load something.
constexpr std::array kSystemFolders{"/usr/lib/x86_64-linux-gnu",
                                    "/usr/lib/aarch64-linux-gnu",
                                    "/lib/x86_64-linux-gnu",
                                    "/usr/lib64",
                                    "/usr/lib",
                                    "/usr/local/lib",
                                    "/usr/lib/wsl/lib",
                                    "/usr/local/nvidia/lib64",
                                    "/usr/local/cuda/lib64",
                                    "/opt/rocm/lib"};

using Exists = std::function<bool(const std::string&)>;

bool is_loaded(const std::string& name) {
  void* library = ::dlopen(name.c_str(), RTLD_NOW | RTLD_NOLOAD);
  if (library != nullptr) ::dlclose(library);
  return library != nullptr;
}

std::vector<std::string> split_path(const std::string& path) {
  std::vector<std::string> folders;
  size_t start = 0;
  while (start <= path.size()) {
    size_t end = std::min(path.find(':', start), path.size());
    if (end > start) folders.push_back(path.substr(start, end - start));
    start = end + 1;
  }
  return folders;
}

// A name that dlopen finds by itself, or the path of a file; empty: none.
std::string find_by_loader(const LibraryPlaces& places, const std::string& name, const Exists& exists) {
  for (const std::string& folder : split_path(places.library_path)) {
    if (exists(folder + "/" + name)) return folder + "/" + name;
  }
  for (const char* folder : kSystemFolders) {
    std::string path = fmt::format("{}/{}", folder, name);
    if (exists(path)) return path;
  }
  return "";
}

std::string find_driver(const LibraryPlaces& places, const Family& family, const Exists& exists) {
  for (const char* name : family.drivers) {
    if (name == nullptr) continue;
    if (is_loaded(name)) return name;
    if (std::string path = find_by_loader(places, name, exists); !path.empty()) return path;
    if (family.is_hip && !places.site_packages.empty()) {
      std::string path = places.site_packages + "/torch/lib/libamdhip64.so";
      if (exists(path)) return path;
    }
  }
  return "";
}

// What the user named comes first; then the one that the framework has loaded.
std::string find_nccl(const LibraryPlaces& places, const Family& family, const Exists& exists, bool& is_in_process) {
  std::vector<std::string> first;
  if (!places.nccl_library.empty()) {
    first = {places.nccl_library + "/" + family.nccl, places.nccl_library};
  }
  for (const std::string& home : {places.nccl_home, places.cuda_home}) {
    if (home.empty()) continue;
    first.push_back(fmt::format("{}/lib/{}", home, family.nccl));
    first.push_back(fmt::format("{}/lib64/{}", home, family.nccl));
  }
  for (const std::string& path : first) {
    if (exists(path)) return path;
  }
  is_in_process = is_loaded(family.nccl);
  if (is_in_process) return family.nccl;
  if (std::string path = find_by_loader(places, family.nccl, exists); !path.empty()) return path;
  if (!places.site_packages.empty()) {
    std::string path = fmt::format("{}/{}/{}", places.site_packages, family.package, family.nccl);
    if (exists(path)) return path;
  }
  if (!places.conda_prefix.empty()) {
    std::string path = fmt::format("{}/lib/{}", places.conda_prefix, family.nccl);
    if (exists(path)) return path;
  }
  return "";
}

int version_of(void* library) {
  auto version = reinterpret_cast<NcclResult (*)(int*)>(::dlsym(library, "ncclGetVersion"));
  int code = 0;
  return version != nullptr && version(&code) == NcclResult::success ? code : 0;
}

std::string too_old(int version) {
  return fmt::format("NCCL {} is older than {}", nccl_version_text(version), nccl_version_text(kOldestNccl));
}

}  // namespace

LibrarySearch find_libraries(const LibraryPlaces& places, const Exists& exists) {
  LibrarySearch best;
  best.reason = "no GPU driver library (libcuda.so.1, libamdhip64.so) was found";
  for (const Family& family : kFamilies) {
    LibrarySearch found;
    found.is_hip = family.is_hip;
    found.driver = find_driver(places, family, exists);
    found.nccl = find_nccl(places, family, exists, found.nccl_is_loaded);
    if (found.driver.empty() && found.nccl.empty()) continue;
    if (found.driver.empty()) {
      found.reason = fmt::format("no driver library {} was found", family.drivers[0]);
    } else if (found.nccl.empty()) {
      found.reason = fmt::format(
          "no {} was found; install it, or name its folder in HOROVOD_NCCL_LIB or HOROVOD_NCCL_HOME", family.nccl);
    }
    if (found.nccl_is_loaded) {
      void* library = ::dlopen(found.nccl.c_str(), RTLD_NOW | RTLD_NOLOAD);
      found.nccl_version = version_of(library);
      ::dlclose(library);
      if (found.nccl_version < kOldestNccl) found.reason = too_old(found.nccl_version);
    }
    if (found.is_usable()) return found;
    if (best.driver.empty() && best.nccl.empty()) best = found;
  }
  return best;
}

LibrarySearch find_libraries(const LibraryPlaces& places) {
  return find_libraries(places, [](const std::string& path) {
    struct stat facts {};
    return ::stat(path.c_str(), &facts) == 0 && S_ISREG(facts.st_mode);
  });
}

std::string own_site_packages() {
  Dl_info facts{};
  if (::dladdr(reinterpret_cast<const void*>(&own_site_packages), &facts) == 0 || facts.dli_fname == nullptr) return "";
  std::string path = facts.dli_fname;  // <site-packages>/horovod/lib/libhorovod.so
  for (int i = 0; i < 3; i++) {
    size_t slash = path.rfind('/');
    if (slash == std::string::npos) return "";
    path.resize(slash);
  }
  return path;
}

Result<GpuLibraries> open_libraries(const LibrarySearch& found) {
  if (!found.is_usable()) return Status(Code::unknown, found.reason);
  GpuLibraries libraries;
  void* driver = ::dlopen(found.driver.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (driver == nullptr) return Status(Code::unknown, fmt::format("cannot load the GPU driver: {}", ::dlerror()));
  auto cuda = read_cuda_api(driver, found.is_hip);
  if (!cuda.ok()) return cuda.status();
  libraries.cuda = *cuda;
  void* library = ::dlopen(found.nccl.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return Status(Code::unknown, fmt::format("cannot load NCCL: {}", ::dlerror()));
  libraries.nccl_version = version_of(library);
  if (libraries.nccl_version < kOldestNccl) return Status(Code::unknown, too_old(libraries.nccl_version));
  auto nccl = read_nccl_api(library);
  if (!nccl.ok()) return nccl.status();
  libraries.nccl = *nccl;
  return libraries;
}

// The library must not stay in this process: a framework that is imported later brings its own.
int probe_nccl_version(const LibrarySearch& found) {
  if (found.nccl_is_loaded) return found.nccl_version;
  if (found.nccl.empty()) return 0;
  int ends[2];
  if (::pipe(ends) != 0) return 0;
  pid_t child = ::fork();
  if (child == 0) {
    void* library = ::dlopen(found.nccl.c_str(), RTLD_NOW | RTLD_LOCAL);
    int version = library == nullptr ? 0 : version_of(library);
    ssize_t written = ::write(ends[1], &version, sizeof version);
    ::_exit(written == sizeof version ? 0 : 1);
  }
  ::close(ends[1]);
  int version = 0;
  if (child > 0) {
    if (::read(ends[0], &version, sizeof version) != sizeof version) version = 0;
    ::waitpid(child, nullptr, 0);
  }
  ::close(ends[0]);
  return version;
}

}  // namespace hvd
