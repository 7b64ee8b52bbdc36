// The world that the environment describes. Thread rule: pure function.
#pragma once

#include "base/status.h"
#include "model/config.h"
#include "model/world.h"

namespace hvd {

Result<World> world_from_config(const Config& config, Generation generation);

}  // namespace hvd
