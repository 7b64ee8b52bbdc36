// Host groups whose ranks live in one process, for tests that run several ranks as threads. Thread rule: any.
#pragma once

#include <vector>

#include "base/status.h"
#include "model/host_group.h"

namespace hvd {

Result<std::vector<HostGroup>> make_local_groups(int32_t size);

}  // namespace hvd
