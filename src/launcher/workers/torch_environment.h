// The variables of torchrun, for scripts that were written for it: --torch-env. Not set by default, because some
// libraries start torch.distributed if they find them. Thread rule: plain values; find_torch_master() checks the ports
// of this machine.
#pragma once

#include <string>

#include "launcher/command_line/tunables.h"
#include "launcher/hosts/hosts.h"
#include "launcher/workers/meeting.h"

namespace hvd::launcher {

// `host`: the host of rank 0; `is_here`: it is this machine.
TorchMaster find_torch_master(const std::string& host, bool is_here, const Meeting& meeting);

// Variables for all workers of a job, unless already set: a user may choose the address and the port.
Variables torch_job_variables(const TorchMaster& master);

// Variables for one worker. They override the launcher's own environment, which cannot be right for all ranks. `first`:
// the slot of its host with local rank 0.
Variables torch_rank_variables(const Slot& slot, const Slot& first);

}  // namespace hvd::launcher
