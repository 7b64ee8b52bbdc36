// Where libhorovod.so is, without loading it. Thread rule: find_library may start a process and wait for it.
#pragma once

#include <string>

namespace hvd {

// $HOROVOD_LIBRARY, or else the one of the package in `package_folder`, or else the one beside this program, as in a
// source tree; empty: none.
std::string library_of(const std::string& package_folder);

// The same, with the package that the Python beside horovodrun or on PATH finds. `program` is how horovodrun was
// called.
std::string find_library(const std::string& program);

}  // namespace hvd
