"""Runs Python code as the ranks of a world on this machine, without a launcher.

`run_ranks(2, body)` runs the function `body` in two processes and returns how each ended. The source of the function is
what travels, so it uses only its arguments, what it imports, and the names of PRELUDE.
"""

from __future__ import annotations

import inspect
import math
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Self

import placement

ROOT = Path(__file__).resolve().parents[2]

PRELUDE = """
from __future__ import annotations
import faulthandler, os, signal, sys, threading, time
import numpy as np
import horovod.numpy as hvd
from typing import Any
faulthandler.dump_traceback_later({limit}, exit=True)

def say(text):
    print(text, flush=True)

def failure(call):
    try:
        call()
    except Exception as error:
        return f"{{type(error).__name__}}: {{error}}"
    return "no error"
"""


def say(text: object) -> None:
    """Stands for the function of the same name in PRELUDE, for type checkers."""
    raise NotImplementedError(text)


def failure(call: Callable[[], object]) -> str:
    """Stands for the function of the same name in PRELUDE, for type checkers."""
    raise NotImplementedError(call)


@dataclass
class Ended:
    """How a rank ended."""

    code: int
    output: str
    errors: str

    @property
    def lines(self) -> list[str]:
        return self.output.splitlines()


class _Stream:
    """Collects what a process writes, and lets others wait for a line of it."""

    def __init__(self, pipe: IO[str]) -> None:
        self._lines: list[str] = []  # guarded by _changed
        self._ended = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._read, args=(pipe,), daemon=True)
        self._thread.start()

    def _read(self, pipe: IO[str]) -> None:
        with pipe:
            for line in pipe:
                with self._changed:
                    self._lines.append(line)
                    self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def text(self) -> str:
        with self._changed:
            return "".join(self._lines)

    def wait_for(self, part: str, limit: float) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._ended or any(part in line for line in self._lines), limit)
            return any(part in line for line in self._lines)

    def wait_for_end(self, limit: float) -> None:
        self._thread.join(limit)


Start = Callable[..., "subprocess.Popen[str]"]  # start(rank, command, env=..., **the rest of Popen's options)


def start_here(_rank: int, command: list[str], **options: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(command, **options)


class Ranks:
    """The processes of a world. A context manager: nothing runs on after it."""

    def __init__(
        self,
        size: int | list[int],
        body: Callable[..., object],
        *args: Any,
        env: dict[str, str] | None = None,
        only: list[int] | None = None,
        limit: float = 60,
        start: Start = start_here,
    ) -> None:
        """`size`: the number of ranks, or those of each of several hosts, pretended ones unless `start` has others."""
        hosts = [size] if isinstance(size, int) else size
        self._deadline = time.monotonic() + limit
        source = PRELUDE.format(limit=limit) + textwrap.dedent(inspect.getsource(body))
        source += f"\n{body.__name__}(*{args!r})\n"
        outside = {key: value for key, value in os.environ.items() if not key.startswith("HOROVOD_")}
        if "HOROVOD_LIBRARY" in os.environ:
            outside["HOROVOD_LIBRARY"] = os.environ["HOROVOD_LIBRARY"]
        job = placement.job(hosts) | {"PYTHONPATH": str(ROOT / "python"), "PYTHONUNBUFFERED": "1"}
        self.processes = {
            rank: start(
                rank,
                [sys.executable, "-c", source],
                env=outside | job | placement.place(hosts, rank) | (env or {}),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in (range(sum(hosts)) if only is None else only)
        }
        self._output = {rank: _Stream(_pipe(process.stdout)) for rank, process in self.processes.items()}
        self._errors = {rank: _Stream(_pipe(process.stderr)) for rank, process in self.processes.items()}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
            process.wait()

    def wait_for_line(self, rank: int, part: str, limit: float = math.inf) -> None:
        """Wait until the rank has written a line that contains `part`."""
        if not self._output[rank].wait_for(part, min(limit, self._left())):
            raise AssertionError(f"rank {rank} did not say {part!r}\n{self._report()}")

    def wait_for_error(self, rank: int, part: str) -> None:
        """The same on its stderr."""
        if not self._errors[rank].wait_for(part, self._left()):
            raise AssertionError(f"rank {rank} did not report {part!r}\n{self._report()}")

    def lines(self, rank: int) -> list[str]:
        """What the rank has written so far."""
        return self._output[rank].text().splitlines()

    def send(self, rank: int, number: signal.Signals) -> None:
        self.processes[rank].send_signal(number)

    def wait(self) -> list[Ended]:
        """Wait for all ranks, in rank order; AssertionError with all output if one is not done in time."""
        for process in self.processes.values():
            try:
                process.wait(self._left())
            except subprocess.TimeoutExpired:
                raise AssertionError(f"a rank did not end in time\n{self._report()}") from None
        return [self._ended(rank) for rank in self.processes]

    def _ended(self, rank: int) -> Ended:
        # A forked child may hold the pipes open for longer than its parent lives.
        self._output[rank].wait_for_end(30)
        self._errors[rank].wait_for_end(30)
        return Ended(self.processes[rank].returncode, self._output[rank].text(), self._errors[rank].text())

    def _left(self) -> float:
        return max(0.0, self._deadline - time.monotonic())

    def _report(self) -> str:
        return "\n".join(
            f"rank {rank}: exit code {process.poll()}\n{self._output[rank].text()}{self._errors[rank].text()}"
            for rank, process in self.processes.items()
        )


def run_ranks(size: int | list[int], body: Callable[..., object], *args: Any, **options: Any) -> list[Ended]:
    """Run `body(*args)` on all ranks to the end; options are those of Ranks. AssertionError unless all succeed."""
    with Ranks(size, body, *args, **options) as ranks:
        ended = ranks.wait()
        assert all(each.code == 0 for each in ended), ranks._report()
        return ended


def _pipe(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream
