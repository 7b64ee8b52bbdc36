#include "launcher/programs/search_path.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

namespace hvd {

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

}  // namespace hvd
