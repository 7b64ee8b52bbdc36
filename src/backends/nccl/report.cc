#include "backends/nccl/report.h"

#include <dlfcn.h>
#include <fmt/core.h>

#include <array>

namespace hvd {
namespace {

std::string driver_version_text(const CudaApi& cuda) {
  int code = 0;
  if (cuda.driver_version(&code) != kCudaSuccess) return "of an unknown version";
  if (cuda.is_hip) return fmt::format("{}", code);
  return fmt::format("{}.{}", code / 1000, code % 1000 / 10);
}

std::string path_of(const void* function, const std::string& name) {
  Dl_info facts{};
  bool is_known = ::dladdr(function, &facts) != 0 && facts.dli_fname != nullptr;
  return is_known ? facts.dli_fname : name;
}

std::string gpus_text(const CudaApi& cuda) {
  CudaResult result = cuda.init(0);
  int count = 0;
  if (result == kCudaSuccess) result = cuda.device_count(&count);
  if (result != kCudaSuccess) return fmt::format("no GPU: {}", cuda.describe(result));
  if (count == 0) return "no GPU";
  std::string text;
  for (int ordinal = 0; ordinal < count; ordinal++) {
    CudaDevice device = -1;
    std::array<char, 96> name{}, id{};
    if (cuda.device_get(&device, ordinal) != kCudaSuccess) continue;
    cuda.device_name(name.data(), static_cast<int>(name.size()), device);
    cuda.device_pci_id(id.data(), static_cast<int>(id.size()), device);
    text += fmt::format("{}GPU {}: {} at {}", text.empty() ? "" : "; ", ordinal, name.data(), id.data());
  }
  return text;
}

}  // namespace

GpuReport describe_gpus(const LibrarySearch& found) {
  auto libraries = open_libraries(found);
  if (!libraries.ok()) return {.text = std::string(libraries.status().message())};
  std::string nccl = path_of(reinterpret_cast<const void*>(libraries->nccl.version), found.nccl);
  std::string driver = path_of(reinterpret_cast<const void*>(libraries->cuda.init), found.driver);
  return {.is_usable = true,
          .text = fmt::format("{} from {}; driver {} from {}; {}", nccl_version_text(libraries->nccl_version), nccl,
                              driver_version_text(libraries->cuda), driver, gpus_text(libraries->cuda))};
}

}  // namespace hvd
