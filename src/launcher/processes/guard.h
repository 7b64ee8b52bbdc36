// A second process between the user and the launcher, so that nothing survives the end of either. The visible process
// only waits and passes signals on; the launcher proper runs in a session of its own below it. An agent has one too.
//   visible process killed (even with -9)  -> the launcher gets SIGTERM and stops the job in good order
//   launcher killed                        -> the visible process inherits what it left and kills it
// It ends only what came out of the launcher: where this process has children already, a third one is put between.
// Thread rule: called once, from main, before any thread exists.
#pragma once

#include <signal.h>

#include <functional>

#include "launcher/processes/process.h"

namespace hvd::launcher {

// Signals the launcher acts upon; blocked in both processes, which read them from a descriptor or by sigwait.
inline constexpr int kStopSignals[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM};

// Returns the exit code of `launcher`, which runs in the lower process; `name` is what it is called in messages.
int run_guarded(const char* name, const std::function<int()>& launcher);

// Runs `body` in a process below this one, in a session of its own, and passes signals on until it has ended. For what
// already runs guarded.
Ending run_below(const std::function<int()>& body);

}  // namespace hvd::launcher
