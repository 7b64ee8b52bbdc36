// Loads backend libraries. Thread rule: any thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backends/backend.h"

namespace hvd {

// A library that cannot be loaded is an error that names it. Libraries stay loaded for the life of the process.
Result<std::vector<std::unique_ptr<Backend>>> load_backends(const std::vector<std::string>& paths,
                                                            const BackendContext& context);

}  // namespace hvd
