// The Python that horovodrun belongs to. Thread rule: as search_path.h.
#pragma once

#include <string>

namespace hvd {

// The Python of the environment that horovodrun was installed into, or else of $PATH; empty: there is none. `program`
// is how horovodrun was called (argv[0]): the link that leads to it counts first.
std::string find_python(const std::string& program);

}  // namespace hvd
