// The name of this machine. Thread rule: any thread.
#pragma once

#include <limits.h>
#include <unistd.h>

#include <array>
#include <string>

namespace hvd {

// Empty if it has no name.
inline std::string host_name() {
  std::array<char, HOST_NAME_MAX + 1> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

}  // namespace hvd
