// The environment of a worker: its rank, the rendezvous, and the job's key.
// Thread rule: plain values and pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launcher/command_line/options.h"
#include "launcher/command_line/tunables.h"
#include "launcher/hosts/hosts.h"
#include "launcher/workers/host_runner.h"
#include "launcher/workers/meeting.h"

namespace hvd::launcher {

// Variables for all workers of a job: `tunables` (from the command line) and the rendezvous.
Variables job_variables(const Variables& tunables, const Meeting& meeting);

// Variables for the rank of a worker.
Variables rank_variables(const Slot& slot);
// The same, with additions from the options. `first`: the slot of the host with local rank 0.
Variables rank_variables(const Slot& slot, const Slot& first, const Options& options);

// The part of the launcher's environment for other hosts: without variables of this machine or login.
Variables forwarded_variables(char* const* inherited, const Host& host);

// How many threads a worker's libraries should start, unless the user has set it. Otherwise every worker would start
// one per core.
Variables thread_defaults(int cores, int local_size);

// NAME=VALUE strings: defaults, overridden by the host's variables, overridden by each of `layers`.
std::vector<std::string> merged_environment(const Variables& defaults, char* const* inherited,
                                            const std::vector<const Variables*>& layers);

// The value for a worker on this host; null: not set.
const char* find_variable(char* const* environment, std::string_view name);

// The current directory; empty: it has no name. Call early, because directories may be removed.
std::string current_directory();

// `directory`: where workers on other hosts start. `is_here`: the host is this machine; workers inherit its directory
// and environment. `local_size` workers share its `cores`.
Work work_on(const Host& host, const Options& options, const Meeting& meeting, const std::string& directory,
             bool is_here, int cores, int local_size);

}  // namespace hvd::launcher
