// Where programs are: $PATH. Thread rule: any thread, as long as nobody changes the environment.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace hvd {

bool is_program(const std::filesystem::path& path);  // a file that may be executed

std::vector<std::filesystem::path> path_folders();

// The first in $PATH, or the path itself if `name` has a slash; empty: there is none.
std::filesystem::path find_program(const std::string& name);

}  // namespace hvd
