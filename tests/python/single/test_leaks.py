"""Nothing grows when worlds are formed and ended, or operations run, again and again."""

from __future__ import annotations

import os
import threading
import time

import numpy as np
import pytest
from ranks import run_ranks, say

import horovod.numpy as hvd


def rounds(count: int) -> None:
    import gc

    def resources() -> tuple[int, int, int]:
        gc.collect()
        with open("/proc/self/statm") as statm:
            pages = int(statm.read().split()[1])
        tasks = len(os.listdir("/proc/self/task"))
        return len(os.listdir("/proc/self/fd")), tasks, pages * os.sysconf("SC_PAGE_SIZE")

    def one_round() -> None:
        hvd.init()
        hvd.allreduce(np.ones(1000))
        hvd.allgather(np.ones((10, 10)))
        hvd.allreduce_async(np.ones(1000))
        hvd.broadcast_object({"a": 1})
        hvd.barrier()
        hvd.shutdown()

    for _ in range(20):
        one_round()
    files, tasks, memory = resources()
    for _ in range(count):
        one_round()
    files_after, tasks_after, memory_after = resources()
    deadline = time.monotonic() + 30
    while tasks_after > tasks and time.monotonic() < deadline:  # Linux lists a thread that was joined a little longer
        time.sleep(0.01)
        files_after, tasks_after, memory_after = resources()
    assert files_after <= files, (files, files_after)
    assert tasks_after <= tasks, (tasks, tasks_after)
    assert memory_after - memory < 4 << 20, (memory, memory_after)
    assert threading.active_count() == 1
    say("done")


@pytest.mark.parametrize("size", [1, 2])
def test_rounds_of_init_and_shutdown(size: int) -> None:
    assert all(each.lines == ["done"] for each in run_ranks(size, rounds, 200, limit=100))


def many_results() -> None:
    import gc

    def memory() -> int:
        gc.collect()
        with open("/proc/self/statm") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def gather() -> None:
        for i in range(100):
            hvd.allgather(np.ones((10_000, 2)), name="gathered")
            hvd.allreduce(np.ones(i), name="different shapes")
            hvd.allreduce(np.ones(20_000), name=None)

    hvd.init()
    for _ in range(3):
        gather()
    before = memory()
    for _ in range(10):
        gather()  # a leak of one result in each would be 300 MB
    grown = memory() - before
    assert grown < 16 << 20, grown
    hvd.barrier()
    say("done")


def test_results_are_given_back() -> None:
    assert all(each.lines == ["done"] for each in run_ranks(2, many_results))
