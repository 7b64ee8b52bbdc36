// Settings of the engine's parts, from the configuration. Thread rule: pure functions.
#pragma once

#include "engine/tuner.h"
#include "model/config.h"
#include "model/host_group.h"
#include "model/world.h"
#include "negotiation/coordinator.h"
#include "transport/transport.h"

namespace hvd {

// Whether the engine thread has a core that is not the only one of this rank or another.
bool has_spare_core(const World& world, const Config& config);
TransportSettings transport_settings(const World& world, const Config& config);
CoordinatorSettings coordinator_settings(const Config& config, const HostGroup& group);
TunerSettings tuner_settings(const Config& config, const Tuning& start);

}  // namespace hvd
