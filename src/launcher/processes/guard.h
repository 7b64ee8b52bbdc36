// A second process between the user and the launcher, so that no process outlives either of them. The visible process
// only waits and forwards signals; the launcher proper runs below it in its own session. An agent has one too.
//   visible process killed (even with -9)  -> the launcher gets SIGTERM and stops the job in good order
//   launcher killed                        -> the visible process inherits what it left and kills it
// It kills only processes that come from the launcher: if this process already has children, a third one is inserted.
// Thread rule: called once, from main, before any thread exists.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <functional>

#include "launcher/processes/process.h"

namespace hvd::launcher {

// Signals that the launcher handles; blocked in both processes, which read them from a descriptor or with sigwait.
inline constexpr int kStopSignals[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM};
inline constexpr int kDumpSignal = SIGUSR2;  // treated alike

// Returns the exit code of `launcher`, which runs in the lower process; `name` is its name in messages.
int run_guarded(const char* name, const std::function<int()>& launcher);

// The process that the user sees, and names: the visible one of run_guarded(), or else this one.
pid_t visible_pid();

// Runs `body` in a child process with its own session, and forwards signals until it has ended. For code that is
// already guarded.
Ending run_below(const std::function<int()>& body);

}  // namespace hvd::launcher
