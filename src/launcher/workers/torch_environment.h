// What torchrun tells its workers, for scripts that were written for it: --torch-env. By default a job has none of
// this, because libraries that find it start torch.distributed by themselves.
// Thread rule: plain values; find_torch_master() looks at the ports of this machine.
#pragma once

#include <string>

#include "launcher/command_line/tunables.h"
#include "launcher/hosts/hosts.h"
#include "launcher/workers/meeting.h"

namespace hvd::launcher {

// `host`: the one of rank 0; `is_here`: it is this machine.
TorchMaster find_torch_master(const std::string& host, bool is_here, const Meeting& meeting);

// What all workers of a job find unless it is set: a user may choose the address and the port.
Variables torch_job_variables(const TorchMaster& master);

// The place of one worker. It replaces what the launcher's own environment says, which cannot be right for all ranks.
// `first` is the slot of its host with local rank 0.
Variables torch_rank_variables(const Slot& slot, const Slot& first);

}  // namespace hvd::launcher
