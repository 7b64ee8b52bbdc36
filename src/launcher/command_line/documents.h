// Texts about horovodrun's options, generated from the option table: --help, the man page, docs/options.md, shell
// completions, and JSON. Thread rule: pure functions.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "launcher/command_line/option_table.h"

namespace hvd::launcher {

std::string help_text();
std::string man_page();  // troff
std::string markdown_page();

std::string completion(std::string_view shell);  // bash, zsh or fish

// python/horovod/runner/options.json is a copy, from which horovod.runner.options builds its parser.
std::string options_json();

// --dry-run: the job that a command line describes, as JSON.
Result<std::string> job_json(const CommandLine& line);

}  // namespace hvd::launcher
