"""Jobs that wait to be ended, and a way to see that their processes are gone."""

import contextlib
import os
import select
import subprocess
import time

DEADLINE = 30

# A worker that says its pid and waits to be ended.
WAIT = "import os, signal; print(os.getpid()); signal.pause()"
# The same, deaf to everything but SIGKILL.
STUBBORN = """
import os, signal
for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
    signal.signal(number, signal.SIG_IGN)
print(os.getpid())
while True:
    signal.pause()
"""
# A worker whose child left its process group and session.
RUNAWAY = f"""
import os, subprocess, sys
subprocess.Popen([sys.executable, "-c", {WAIT!r}], start_new_session=True).wait()
"""


class Processes:
    """Watches processes by descriptor, so that a reused pid cannot deceive."""

    def __init__(self, pids):
        self.fds = [os.pidfd_open(pid) for pid in pids]

    def gone(self):
        """Waits until all have ended."""
        end = time.monotonic() + DEADLINE
        return all(select.select([fd], [], [], max(0, end - time.monotonic()))[0] for fd in self.fds)


@contextlib.contextmanager
def started(command, workers):
    """Runs a job whose workers print a pid each; gives the launcher's process and the workers'."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            pids = [int(process.stdout.readline().rpartition(b":")[2]) for _ in range(workers)]
            yield process, Processes(pids)
        finally:
            process.kill()
