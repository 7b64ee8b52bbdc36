// horovodrun --top, --dump and --explain: what they ask a running launcher, and print. Thread rule: one thread.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace hvd::launcher {

// `job` is the pid of a launcher of this user on this machine; empty: the only one there is. Exit codes: 0, 1 and 2,
// the last for a job that is not there.
int run_top(const std::string& job);
int run_dump(const std::string& job, const std::string& folder);  // of the file, see new_dump_file()
int run_explain(const std::string& file);

// One picture of a job; pure. `width` of the terminal.
std::string top_text(const nlohmann::json& status, size_t width);

}  // namespace hvd::launcher
