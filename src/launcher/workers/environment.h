// What a worker finds in its environment: its rank, where its peers meet, and the job's key.
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

// What all workers of a job are told: `tunables` (the command line's) and where they meet.
Variables job_variables(const Variables& tunables, const Meeting& meeting);

// What says which rank a worker is.
Variables rank_variables(const Slot& slot);
// The same, and what the options add to it. `first` is the slot of the host with local rank 0.
Variables rank_variables(const Slot& slot, const Slot& first, const Options& options);

// What of the launcher's environment goes to another host: all but what belongs to this machine or login alone.
Variables forwarded_variables(char* const* inherited, const Host& host);

// How many threads a worker's libraries should start, unless the user has set it. Without this every worker would
// start one per core.
Variables thread_defaults(int cores, int local_size);

// NAME=VALUE strings: defaults, overridden by what the host has, overridden by each of `layers`.
std::vector<std::string> merged_environment(const Variables& defaults, char* const* inherited,
                                            const std::vector<const Variables*>& layers);

// The value that a worker on this host would find, or nothing.
const char* find_variable(char* const* environment, std::string_view name);

// Where the user is; empty: nowhere that has a name. To be asked early, because directories go away.
std::string current_directory();

// `directory` is where workers on other hosts start. `is_here`: the host is this machine, so that they inherit it, and
// the environment. `local_size` workers share its `cores`.
Work work_on(const Host& host, const Options& options, const Meeting& meeting, const std::string& directory,
             bool is_here, int cores, int local_size);

}  // namespace hvd::launcher
