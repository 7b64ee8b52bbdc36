"""The processes of one job: forked, watched, stopped for moments, and never left behind.

Forked from the controller, which has loaded everything and has one thread: a new process costs milliseconds.
"""

from __future__ import annotations

import ctypes
import faulthandler
import json
import mmap
import os
import random
import signal
import struct
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import placement
import worker
from program import Job
from resources import Resources, growth

PR_SET_PDEATHSIG = 1
STALL_SECONDS = "30"  # after which the engine reports the missing ranks


class JobFailed(AssertionError):
    """Something about a job is wrong; says what.

    `where` is a world, and a program of it, if that is known; `kind` is the same for what has the same cause, probably.
    """

    def __init__(self, text: str, where: str = "", kind: str = "") -> None:
        super().__init__(text)
        self.where = where
        self.kind = kind


class RunningJob:
    """Started by its constructor; call `tick` until it says that the job is over, then `close`."""

    def __init__(self, job: Job, hang_seconds: float, inject: str = "") -> None:
        """`inject` makes process 0 do something wrong, which shows that it is noticed."""
        self.job = job
        self._inject = inject
        self._hang_seconds = hang_seconds
        self._chance = random.Random(job.name)
        self._counters = mmap.mmap(-1, 8 * job.size)
        self._log, self._log_name = tempfile.mkstemp(prefix="differential-", suffix=".log")
        self._victims = {world.members[rank]: kind for world in job.worlds for rank, kind in world.victims.items()}
        shared = placement.job([job.size]) | {"HOROVOD_STALL_CHECK_TIME_SECONDS": STALL_SECONDS}
        self._pids: dict[int, int] = {}
        self._codes: dict[int, int] = {}
        self._reports: dict[int, int] = {}
        self._told: dict[int, bytes] = {}
        sys.stdout.flush()
        for process in range(job.size):
            self._start(process, shared)
        self._stopped: int | None = None
        self._next_stop = time.monotonic()
        self._last = (0, time.monotonic())
        self._failed_at: float | None = None

    def _start(self, process: int, shared: dict[str, str]) -> None:
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            code = 70
            try:
                code = self._live(process, shared, writing)
            finally:
                os._exit(code)
        os.close(writing)
        self._pids[process] = pid
        self._reports[process] = reading
        self._told[process] = b""

    def _live(self, process: int, shared: dict[str, str], report: int) -> int:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        for to in (1, 2):
            os.dup2(self._log, to)
        os.closerange(3, report)
        os.closerange(report + 1, 4096)
        faulthandler.enable(all_threads=True)
        return worker.run_process(self.job, process, shared, lambda: self._count(process), report, self._inject)

    def _count(self, process: int) -> None:
        done = struct.unpack_from("q", self._counters, 8 * process)[0]
        struct.pack_into("q", self._counters, 8 * process, done + 1)

    def descriptors(self) -> list[int]:
        """Those that say when a process ends."""
        return list(self._reports.values())

    def programs_done(self) -> int:
        """By the slowest of the processes that last."""
        lasting = [process for process in range(self.job.size) if process not in self._victims]
        return min(struct.unpack_from("q", self._counters, 8 * process)[0] for process in lasting)

    def tick(self) -> bool:
        """Look after the processes; True when all have ended, and JobFailed if that was wrong."""
        self._read()
        self._stop_somebody()
        now = time.monotonic()
        done = sum(struct.unpack(f"{self.job.size}q", self._counters[:]))
        if done != self._last[0]:
            self._last = (done, now)
        alive = [process for process in self._pids if process not in self._codes]
        if all(self._victims.get(process) == "freeze" for process in alive):
            for process in alive:
                os.kill(self._pids[process], signal.SIGKILL)
                self._codes[process] = -_wait(self._pids[process])
            self._judge()
            return True
        failed = any(code != 0 and process not in self._victims for process, code in self._codes.items())
        if self._failed_at is None and failed:
            self._failed_at = now
        if self._failed_at is not None and now - self._failed_at > 3:
            self._judge()
        if now - self._last[1] > self._hang_seconds:
            self._show_stacks(alive)
            raise JobFailed(
                f"{self._log_text()}\nno program was finished for {self._hang_seconds:.0f} s", self._reached(), "hang"
            )
        return False

    def _read(self) -> None:
        for process, reading in list(self._reports.items()):
            os.set_blocking(reading, False)
            try:
                part = os.read(reading, 1 << 16)
            except BlockingIOError:
                continue
            self._told[process] += part
            if not part:
                os.close(reading)
                del self._reports[process]
                status = _wait_status(self._pids[process])
                self._codes[process] = os.waitstatus_to_exitcode(status)

    def _stop_somebody(self) -> None:
        """Stops a process, or resumes the stopped one, a few milliseconds after the last time."""
        now = time.monotonic()
        if not self.job.stops or now < self._next_stop:
            return
        self._next_stop = now + self._chance.choice((0.002, 0.01, 0.03))
        if self._stopped is not None:
            self._signal(self._stopped, signal.SIGCONT)
            self._stopped = None
            return
        process = self._chance.randrange(self.job.size)
        if process not in self._victims:
            self._stopped = process
            self._signal(process, signal.SIGSTOP)

    def _signal(self, process: int, number: signal.Signals) -> None:
        if process not in self._codes:
            os.kill(self._pids[process], number)

    def _judge(self) -> None:
        """JobFailed unless everything ended as it should."""
        errors, places, kinds = [], [], []
        for process in self._pids:
            told: dict[str, Any] = json.loads(self._told[process]) if self._told[process] else {}
            code = self._codes.get(process)
            if "error" in told:
                errors.append(f"process {process}, {told['where']}: {told['error']}\n{told.get('traceback', '')}")
                places.append((told["error"].startswith("Difference"), told["where"]))
                kinds.append(told["error"].split(":")[0])
            elif process in self._victims and code == -signal.SIGKILL:
                continue
            elif code != 0:
                ended = "was still running" if code is None else f"ended with exit code {code}"
                errors.append(f"process {process} {ended}")
                kinds += ["crash"] * (code is not None)
            elif grown := growth([Resources(*each) for each in told["used"]]):
                errors.append(f"process {process}: {grown}")
                kinds.append("growth")
        if errors:
            where = max(places)[1] if places else self._reached()
            raise JobFailed("\n".join([self._log_text(), *errors]), where, min(kinds, key=_telling, default=""))

    def _reached(self) -> str:
        """The program that the slowest process is in."""
        done = self.programs_done()
        for number, world in enumerate(self.job.worlds):
            if done < len(world.programs):
                return f"world {number} program {done}"
            done -= len(world.programs)
        return ""

    def _show_stacks(self, alive: list[int]) -> None:
        """Let the processes write their stacks into the log: what faulthandler does when they abort."""
        for process in alive:
            self._signal(process, signal.SIGCONT)
            self._signal(process, signal.SIGABRT)
        deadline = time.monotonic() + 10
        while self._reports and time.monotonic() < deadline:
            self._read()
            time.sleep(0.05)

    def _log_text(self) -> str:
        text = Path(self._log_name).read_text(errors="replace")
        return f"what the processes wrote:\n{text[-20_000:]}" if text else ""

    def close(self) -> None:
        """Nothing runs on after this."""
        for process, pid in self._pids.items():
            if process not in self._codes:
                os.kill(pid, signal.SIGKILL)
                self._codes[process] = -_wait(pid)
        for reading in self._reports.values():
            os.close(reading)
        self._reports.clear()
        self._counters.close()
        os.close(self._log)
        Path(self._log_name).unlink(missing_ok=True)


def _telling(kind: str) -> int:
    """What comes first says most about the cause."""
    order = ("crash", "Difference", "growth")
    return order.index(kind) if kind in order else len(order)


def _wait_status(pid: int) -> int:
    return os.waitpid(pid, 0)[1]


def _wait(pid: int) -> int:
    return -os.waitstatus_to_exitcode(_wait_status(pid))
