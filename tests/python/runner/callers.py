"""Processes that call horovod.run, and the means to watch what becomes of them and of their workers."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO, Any

DEADLINE = 60  # seconds until a test gives up

PRELUDE = """
import os, signal, sys, threading, time
import horovod

def say(text):
    print(text, flush=True)

def wait():
    import os, signal
    print(os.getpid(), flush=True)
    signal.pause()

def stubborn():
    import os, signal
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    print(os.getpid(), flush=True)
    while True:
        signal.pause()
"""


@dataclass(frozen=True)
class Meeting:
    """Two named pipes: a worker says that it is there and waits, the test waits for it and lets it go."""

    here: str
    go: str

    def wait_for_worker(self) -> None:
        with open(self.here) as pipe:
            pipe.read()

    def let_go(self) -> None:
        with open(self.go, "w") as pipe:
            pipe.write("go")


def meet(here: str, go: str) -> None:
    """The worker's side of a Meeting."""
    with open(here, "w"):
        pass
    with open(go) as pipe:
        pipe.read()


class Watched:
    """Processes by descriptor, so that a reused number cannot deceive."""

    def __init__(self, pids: list[int]) -> None:
        self._fds = [os.pidfd_open(pid) for pid in pids]

    def gone(self) -> bool:
        """Wait until all have ended."""
        end = time.monotonic() + DEADLINE
        return all(select.select([fd], [], [], max(0, end - time.monotonic()))[0] for fd in self._fds)

    def close(self) -> None:
        for fd in self._fds:
            os.close(fd)


class Caller:
    """A Python process that runs `code` after PRELUDE. Its workers print their pids first."""

    def __init__(self, code: str, workers: int) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PRELUDE + code],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            text=True,
        )
        self.launcher = Watched([])
        self.workers = Watched([])
        pids = [int(_pipe(self.process.stdout).readline().rpartition(":")[2]) for _ in range(workers)]
        self.workers = Watched(pids)
        children = f"/proc/{self.process.pid}/task/{self.process.pid}/children"
        with open(children) as file:
            self.launcher = Watched([int(pid) for pid in file.read().split()])

    def end(self) -> tuple[str, str]:
        """Wait for the process; what it has written since."""
        return self.process.communicate(timeout=DEADLINE)


@contextlib.contextmanager
def calling(code: str, workers: int) -> Iterator[Caller]:
    caller = Caller(code, workers)
    try:
        yield caller
    finally:
        caller.process.kill()
        caller.process.communicate()
        caller.workers.close()
        caller.launcher.close()


def _pipe(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None
    return pipe


def both(one: Callable[[], Any], other: Callable[[], Any]) -> tuple[Any, Any]:
    """Run both at once; each gives what it returns or raises."""
    results: dict[int, Any] = {}

    def body(number: int, function: Callable[[], Any]) -> None:
        try:
            results[number] = function()
        except Exception as error:
            results[number] = error

    thread = threading.Thread(target=body, args=(0, one))
    thread.start()
    body(1, other)
    thread.join()
    return results[0], results[1]
