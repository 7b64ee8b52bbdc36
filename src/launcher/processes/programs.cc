#include "launcher/processes/programs.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <vector>

#include "launcher/processes/capture.h"

namespace hvd::launcher {
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

bool is_program(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored) && ::access(path.c_str(), X_OK) == 0;
}

std::vector<std::filesystem::path> path_folders() {
  std::vector<std::filesystem::path> folders;
  const char* path = std::getenv("PATH");
  for (std::string_view rest = path ? path : ""; !rest.empty();) {
    size_t colon = std::min(rest.find(':'), rest.size());
    if (colon > 0) folders.emplace_back(rest.substr(0, colon));
    rest.remove_prefix(std::min(colon + 1, rest.size()));
  }
  return folders;
}

std::filesystem::path find_program(const std::string& name) {
  if (name.find('/') != std::string::npos)
    return is_program(name) ? std::filesystem::path(name) : std::filesystem::path();
  for (const auto& folder : path_folders())
    if (is_program(folder / name)) return folder / name;
  return {};
}

std::string find_python(const std::string& program) {
  std::vector<std::filesystem::path> folders;
  if (auto path = find_program(program); !path.empty()) folders.push_back(path.parent_path());
  std::error_code ignored;
  folders.push_back(std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path());
  for (const auto& folder : path_folders()) folders.push_back(folder);
  for (const auto& folder : folders)
    for (const char* name : {"python3", "python"})
      if (is_program(folder / name)) return folder / name;
  return "";
}

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

}  // namespace hvd::launcher
