"""Teams: the ranks of each system that torch_train.py compares, all alive at once and only one of them at work.

Every system has processes of its own, so that none carries another's threads. They are started once, and wait in a
read of their standard input while another team is measured; so samples alternate as closely as one likes.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO, Self

from machine import CPUS, ROOT

RANK_PROGRAM = ROOT / "benchmarks" / "torch_rank.py"
TIME_LIMIT = 120  # seconds for one answer


class TeamError(Exception):
    """A rank ended, or did not answer."""


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def environments(ranks: int) -> list[dict[str, str]]:
    """Of each rank: its place, in the words of both libraries, and as many threads as it has cores."""
    outside = {key: value for key, value in os.environ.items() if not key.startswith("HOROVOD_")}
    port = str(free_port())
    shared = outside | {
        "PYTHONPATH": str(ROOT / "python"),
        "OMP_NUM_THREADS": str(max(1, len(CPUS) // ranks)),
        "WORLD_SIZE": str(ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
        "GLOO_SOCKET_IFNAME": "lo",
        "HOROVOD_SIZE": str(ranks),
        "HOROVOD_LOCAL_SIZE": str(ranks),
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": "127.0.0.1",
        "HOROVOD_GLOO_RENDEZVOUS_PORT": port,  # names the world; nothing listens there
    }
    return [
        shared | {name: str(rank) for name in ("RANK", "HOROVOD_RANK", "HOROVOD_LOCAL_RANK")} for rank in range(ranks)
    ]


class Team:
    """The processes of one system. A context manager: nothing runs on after it."""

    def __init__(
        self, system: str, ranks: int, program: Path = RANK_PROGRAM, shared: dict[str, str] | None = None
    ) -> None:
        """`shared`: changes of the environment of all ranks."""
        self.system = system
        self._processes = [
            subprocess.Popen(
                [sys.executable, str(program), system],
                env=environment | (shared or {}),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for environment in environments(ranks)
        ]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            with contextlib.suppress(BrokenPipeError):
                _pipe(process.stdin).close()
        watch = self._watch(20)
        for process in self._processes:
            process.wait()
            _pipe(process.stdout).close()
        watch.cancel()

    def tell(self, command: str) -> list[dict[str, float]]:
        """Let all ranks do it, and return their answers."""
        with contextlib.suppress(BrokenPipeError):  # it is dead: its answer will be missing
            for process in self._processes:
                print(command, file=_pipe(process.stdin), flush=True)
        return self.answers()

    def answers(self) -> list[dict[str, float]]:
        watch = self._watch(TIME_LIMIT)
        lines = [_pipe(process.stdout).readline() for process in self._processes]
        watch.cancel()
        if not all(lines):
            codes = [process.poll() for process in self._processes]
            raise TeamError(f"{self.system}: a rank ended or did not answer within {TIME_LIMIT} s (exit codes {codes})")
        return [json.loads(line) for line in lines]

    def _watch(self, seconds: float) -> threading.Timer:
        """Kills the team unless it is cancelled."""
        timer = threading.Timer(seconds, lambda: [process.kill() for process in self._processes])
        timer.daemon = True
        timer.start()
        return timer


def _pipe(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream
