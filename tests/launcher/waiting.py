"""Jobs that wait to be ended, and a way to see that their processes are gone."""

import contextlib
import os
import pathlib
import select
import subprocess
import time

from child import Child

DEADLINE = 120

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
# A worker with a child and a thread, whose first thread has ended: it is listed as a zombie.
HEADLESS = f"""
import ctypes, subprocess, sys, threading, time
subprocess.Popen([sys.executable, "-c", {WAIT!r}], start_new_session=True)
threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
ctypes.CDLL(None).pthread_exit(None)
"""


class Processes:
    """Watches processes by descriptor, so that a reused pid cannot deceive."""

    def __init__(self, pids):
        self.fds = [os.pidfd_open(pid) for pid in pids]

    def gone(self):
        """Waits until all have ended."""
        end = time.monotonic() + DEADLINE
        return all(select.select([fd], [], [], max(0, end - time.monotonic()))[0] for fd in self.fds)

    def alive(self):
        """Whether none has ended."""
        return not select.select(self.fds, [], [], 0)[0]


@contextlib.contextmanager
def started(command, workers):
    """Runs a job whose workers print a pid each; gives the launcher's process and the workers'."""
    with Child(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            pids = [int(process.stdout.readline().rpartition(b":")[2]) for _ in range(workers)]
            yield process, Processes(pids)
        finally:
            process.kill()


def wait_for_file(path):
    """Until it is there."""
    end = time.monotonic() + DEADLINE
    while not path.exists():
        assert time.monotonic() < end, f"no {path}"
        time.sleep(0.01)


def parent_of(pid):
    """0 if it has just ended, as what a test before left behind may."""
    try:
        return int(pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0


def agents_of(process):
    """The pids of the inner agents below a launcher's process, and of their guards."""
    found = []
    for entry in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if entry.read_bytes().split(b"\0")[1:3] == [b"--agent", b"-"]:
                found.append(int(entry.parent.name))
        except (FileNotFoundError, ProcessLookupError):
            continue
    parents = {pid: parent_of(pid) for pid in found}

    def is_below(pid):
        while pid > 1:
            if pid == process.pid:
                return True
            pid = parent_of(pid)
        return False

    mine = [pid for pid in found if is_below(pid)]
    return [pid for pid in mine if parents[pid] in mine], [pid for pid in mine if parents[pid] not in mine]
