"""Jobs of horovodrun on test-bed hosts: what their ranks run, and what is left of them."""

from __future__ import annotations

import contextlib
import os
import pathlib
import select
import signal
import subprocess
import sys
import time

from bed import Machine

DEADLINE = 60

REDUCE = """
import numpy as np, horovod.numpy as hvd
hvd.init()
result = hvd.allreduce(np.arange(1000.0) + hvd.rank(), op=hvd.Sum)
assert result[1] == hvd.size() + hvd.size() * (hvd.size() - 1) / 2
print("reduced", hvd.rank(), "of", hvd.size(), "on", __import__("socket").gethostname(), flush=True)
hvd.shutdown()
"""
# Tells that it runs, leaves a child that left its session, and is deaf to everything but SIGKILL.
STUBBORN = """
import os, signal, subprocess, sys
for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
    signal.signal(number, signal.SIG_IGN)
subprocess.Popen(["sleep", "1000"], start_new_session=True, stdout=subprocess.DEVNULL)
print("up", flush=True)
while True:
    signal.pause()
"""
WAIT = "import signal; print('up', flush=True); signal.pause()"
SPREAD = ["-np", "4", "-H", "hosta:1,hostb:2,hostc:1"]
QUICK = {"HOROVOD_SILENCE_SECONDS": "2"}
SILENT = "silent for 4 s"  # what the launcher then says of a host: twice that


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def sessions(machine: Machine) -> set[int]:
    """Everything on a host but its sshd."""
    found = set()
    for pid in machine.pids():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if (
                not pathlib.Path(f"/proc/{pid}/cmdline")
                .read_bytes()
                .startswith((b"sshd: /usr/sbin/sshd", b"/usr/sbin/sshd"))
            ):
                found.add(pid)
    return found


def assert_nothing_left(*machines: Machine) -> None:
    """Waits for it: a process that was killed needs a moment to be gone."""
    end = time.monotonic() + DEADLINE
    for machine in machines:
        while left := sessions(machine):
            if time.monotonic() > end:
                names = [pathlib.Path(f"/proc/{pid}/cmdline").read_bytes() for pid in left]
                raise AssertionError(f"left on {machine.name}: {names}")
            time.sleep(0.02)


def of_command(machine: Machine, *words: bytes) -> list[int]:
    found = []
    for pid in machine.pids():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if all(word in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes() for word in words):
                found.append(pid)
    return found


def agent_of(machine: Machine) -> int:
    """The agent, and not its guard or a shell, which have the same words in their command lines and are above it."""
    family = of_command(machine, b"--agent")
    stats = [pathlib.Path(f"/proc/{pid}/stat").read_text() for pid in family]
    (agent,) = set(family) - {int(stat.rpartition(")")[2].split()[1]) for stat in stats}
    return agent


def kill_together(pids: list[int]) -> None:
    """All stand still before the first dies, so that none sees another gone and ends by itself."""
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in pids:
            os.kill(pid, number)


def finish(process: subprocess.Popen[str], code: int) -> tuple[str, str]:
    out, err = process.communicate(timeout=DEADLINE)
    assert process.returncode == code, (out, err)
    return out, err


def await_up(process: subprocess.Popen[str], count: int, line: str = "up\n") -> None:
    """Reads its output until the line has come so often."""
    assert process.stdout
    end = time.monotonic() + DEADLINE
    seen = ""
    while seen.count(line) < count:
        assert select.select([process.stdout], [], [], max(0, end - time.monotonic()))[0], seen
        seen += (part := os.read(process.stdout.fileno(), 4096).decode())
        assert part, seen + (process.stderr.read() if process.stderr else "")
