// The agent of a host: runs workers there as its launcher tells it, and ends with everything it started when the
// launcher lets it go, falls silent or is gone. Started by the launcher over ssh, it talks over stdin and stdout;
// started by anybody else, it calls the launcher (--rendezvous). Thread rule: called once, from main, below a guard.
#pragma once

#include "launcher/command_line/options.h"

namespace hvd {

int run_agent(const Options& options);

}  // namespace hvd
