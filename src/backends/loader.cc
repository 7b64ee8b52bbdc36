#include "backends/loader.h"

#include <dlfcn.h>
#include <fmt/core.h>

#include "base/log.h"

namespace hvd {

Result<std::vector<std::unique_ptr<Backend>>> load_backends(const std::vector<std::string>& paths,
                                                            const BackendContext& context) {
  std::vector<std::unique_ptr<Backend>> backends;
  for (const std::string& path : paths) {
    void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      return Status(Code::invalid_argument,
                    fmt::format("cannot load a backend named by HOROVOD_BACKENDS: {}", ::dlerror()));
    }
    auto entry = reinterpret_cast<BackendEntry>(::dlsym(library, kBackendEntry));
    if (entry == nullptr) {
      return Status(Code::invalid_argument,
                    fmt::format("{} is no backend of this version: it lacks {}", path, kBackendEntry));
    }
    std::unique_ptr<Backend> backend(entry(context));
    if (backend == nullptr) {
      log_info("backend {} is not usable here", path);
      continue;
    }
    log_info("loaded backend {} from {}", backend->name(), path);
    backends.push_back(std::move(backend));
  }
  return backends;
}

}  // namespace hvd
