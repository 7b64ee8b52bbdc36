"""Runs a function as the ranks of a job under mpirun; its source is what travels, as with run_ranks."""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import ranks
from flavours import Flavour, carried_by

needs_mpi4py = pytest.mark.skipif(
    importlib.util.find_spec("mpi4py") is None, reason="mpi4py is not installed (requirements/mpi.txt)"
)
# In one piece: the lines of ranks must not mix.
SAY = """
def say(text):
    os.write(1, f"{text}\\n".encode())
"""


@dataclass
class Job:
    """How a job ended."""

    code: int
    lines: list[str]  # of all ranks, sorted
    errors: str

    @property
    def report(self) -> str:
        return f"exit code {self.code}\n" + "\n".join(self.lines) + "\n" + self.errors


def start(
    flavour: Flavour,
    size: int,
    body: Callable[..., object],
    *args: Any,
    data: str | None = None,
    env: dict[str, str] | None = None,
    options: tuple[str, ...] = (),
    limit: float = 120,
) -> subprocess.Popen[str]:
    """`data`: what moves it, mpi or engine; None leaves everything to what the body does."""
    source = ranks.PRELUDE.format(limit=limit) + SAY + textwrap.dedent(inspect.getsource(body))
    source += f"\n{body.__name__}(*{args!r})\n"
    environment = flavour.environment() | (carried_by(data) if data else {}) | (env or {})
    return subprocess.Popen(
        flavour.command(size, [sys.executable, "-c", source], *options),
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def finish(job: subprocess.Popen[str], limit: float = 120) -> Job:
    """Wait for the end; a job that does not come to it is killed, and the test fails."""
    try:
        out, err = job.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        kill(job)
        out, err = job.communicate()
        raise AssertionError(f"the job hangs\n{out}\n{err}") from None
    finally:
        kill(job)
    return Job(job.returncode, sorted(out.splitlines()), err)


def kill(job: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(job.pid, signal.SIGKILL)


def run(flavour: Flavour, size: int, body: Callable[..., object], *args: Any, **options: Any) -> Job:
    """Run to the end; AssertionError unless the job succeeds."""
    job = finish(start(flavour, size, body, *args, **options))
    assert job.code == 0, job.report
    return job


def path_without(folder: Path, *beginnings: str) -> str:
    """A PATH without the programs whose names begin so."""
    folder.mkdir()
    for part in os.environ["PATH"].split(":"):
        for program in Path(part).glob("*"):
            if not program.name.startswith(beginnings) and not (folder / program.name).exists():
                (folder / program.name).symlink_to(program)
    return str(folder)
