// The table of options as JSON. python/horovod/runner/options.json is a copy, from which horovod.runner.options builds
// its parser. Thread rule: pure functions.
#pragma once

#include <string>

namespace hvd {

std::string options_json();

}  // namespace hvd
