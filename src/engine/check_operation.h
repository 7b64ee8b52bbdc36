// Checks of an operation that need no other ranks. Called at submit.
// Thread rule: any thread.
#pragma once

#include "base/status.h"
#include "engine/process_set_table.h"
#include "model/operation.h"
#include "model/world.h"

namespace hvd {

// Also fills in data of the process set: its serial number, even splits, the rows of a reducescatter.
Status check_operation(Operation& operation, const World& world, const ProcessSetTable& process_sets);

}  // namespace hvd
