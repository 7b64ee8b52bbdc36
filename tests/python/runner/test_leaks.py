"""Runs leave nothing behind in the caller: no descriptor, thread or process."""

from __future__ import annotations

import contextlib
import gc
import os
import threading

import psutil

import horovod


def resources() -> tuple[int, int, int]:
    gc.collect()
    return len(os.listdir("/proc/self/fd")), threading.active_count(), len(psutil.Process().children(recursive=True))


def test_nothing_grows() -> None:
    def fail() -> None:
        raise ValueError

    def round_of_runs() -> None:
        horovod.run(lambda: None, num_proc=2)
        with contextlib.suppress(RuntimeError):
            horovod.run(fail, num_proc=2)
        with contextlib.suppress(RuntimeError):
            horovod.run(os._exit, (3,))
        with contextlib.suppress(ValueError):
            horovod.run(int, hosts="localhost:1", num_proc=2)

    round_of_runs()
    before = resources()
    for _ in range(3):
        round_of_runs()
    assert resources() == before
