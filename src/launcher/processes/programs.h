// Where programs and libraries are: $PATH, the Python that horovodrun belongs to, libhorovod.so (without loading it).
// Thread rule: any thread, as long as none changes the environment; find_library may start a process and wait for it.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace hvd::launcher {

bool is_program(const std::filesystem::path& path);  // a file that may be executed

std::vector<std::filesystem::path> path_folders();

// The first one in $PATH, or the path itself if `name` has a slash; empty: not found.
std::filesystem::path find_program(const std::string& name);

// The Python of the environment that horovodrun is installed in, or else of $PATH; empty: not found. `program`: the
// command that started horovodrun (argv[0]); the folder of a symbolic link to it is searched first.
std::string find_python(const std::string& program);

// $HOROVOD_LIBRARY, or else the one in `package_folder`, or else the one next to this program, as in a source tree;
// empty: none.
std::string library_of(const std::string& package_folder);

// The same, with the package that the Python next to horovodrun or on PATH finds. `program`: the command that started
// horovodrun.
std::string find_library(const std::string& program);

}  // namespace hvd::launcher
