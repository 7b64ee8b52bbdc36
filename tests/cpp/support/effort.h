// How much the long tests do: all of it in make soak, a part of it in make test.
#pragma once

#include <cstdlib>
#include <string_view>

namespace hvd::test {

inline bool full() {
  const char* value = std::getenv("TEST_FULL");
  return value != nullptr && std::string_view(value) == "1";
}

}  // namespace hvd::test
