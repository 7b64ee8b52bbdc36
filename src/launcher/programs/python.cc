#include "launcher/programs/python.h"

#include <filesystem>
#include <vector>

#include "launcher/programs/search_path.h"

namespace hvd {

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

}  // namespace hvd
