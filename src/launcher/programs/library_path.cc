#include "launcher/programs/library_path.h"

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string_view>

#include "launcher/programs/capture.h"
#include "launcher/programs/python.h"

namespace hvd {
namespace {

constexpr Duration kPythonPatience = std::chrono::seconds(20);  // on a slow network disk

constexpr std::string_view kFolderScript = R"(
import sys
sys.path[:] = [path for path in sys.path if path]
import importlib.util
spec = importlib.util.find_spec("horovod")
print(next(iter(spec.submodule_search_locations or []), "") if spec else "", end="")
)";

}  // namespace

std::string library_of(const std::string& package_folder) {
  if (const char* chosen = std::getenv("HOROVOD_LIBRARY"); chosen != nullptr && *chosen != '\0') return chosen;
  std::error_code error;
  std::filesystem::path own = std::filesystem::read_symlink("/proc/self/exe", error);
  for (const auto& folder : {std::filesystem::path(package_folder), own.parent_path().parent_path()}) {
    std::filesystem::path library = folder / "lib/libhorovod.so";
    if (!folder.empty() && std::filesystem::exists(library, error)) return library;
  }
  return "";
}

std::string find_library(const std::string& program) {
  std::string library = library_of("");
  std::string python = library.empty() ? find_python(program) : "";
  if (python.empty()) return library;
  return library_of(output_of({python, "-c", std::string(kFolderScript)}, kPythonPatience));
}

}  // namespace hvd
