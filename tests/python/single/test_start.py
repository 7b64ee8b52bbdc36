"""Forming the world, and what goes wrong there."""

from __future__ import annotations

import os
import time

import numpy as np
import pytest
from ranks import Ranks, failure, run_ranks, say

import horovod.numpy as hvd


def init_and_say() -> None:
    say(failure(hvd.init))
    say(f"initialized: {hvd.is_initialized()}")


def test_ranks_that_never_come_are_named() -> None:
    started = time.monotonic()
    with Ranks(4, init_and_say, env={"HOROVOD_START_TIMEOUT": "1"}, only=[0, 2]) as ranks:
        ended = ranks.wait()
    assert time.monotonic() - started < 20
    for each in ended:
        assert each.code == 0, each.errors
        assert each.lines[0].startswith("HorovodInternalError"), each.lines
        assert each.lines[1] == "initialized: False"
    assert "1" in ended[0].lines[0] and "3" in ended[0].lines[0]


def duplicates() -> None:
    first, again, world = hvd.ProcessSet([0]), hvd.ProcessSet([0]), hvd.ProcessSet([0, 1])
    for second in (again, world):
        wrong = [first, second]
        say(failure(lambda wrong=wrong: hvd.init(process_sets=wrong)))  # type: ignore[misc]
        say(f"initialized: {hvd.is_initialized()}")
        hvd.init(process_sets=[first])
        say(f"id: {first.process_set_id}")
        assert hvd.allreduce(np.array(1.0), op=hvd.Sum) == 2
        hvd.barrier()
        hvd.shutdown()


def test_duplicate_process_sets_are_refused_but_the_world_stands() -> None:
    for each in run_ranks(2, duplicates):
        assert len(each.lines) == 6
        for refused, initialized, bound in (each.lines[:3], each.lines[3:]):
            assert refused.startswith("ValueError")
            assert (initialized, bound) == ("initialized: True", "id: 1")


def wrong_sets() -> None:
    say(failure(lambda: hvd.init(process_sets=[hvd.ProcessSet([0, 5])])))
    say(f"initialized: {hvd.is_initialized()}")


def test_ranks_that_do_not_exist_are_refused() -> None:
    for each in run_ranks(2, wrong_sets):
        assert each.lines[0].startswith("ValueError") and each.lines[1] == "initialized: False"


def different_sets() -> None:
    mine = int(os.environ["HOROVOD_RANK"])
    say(failure(lambda: hvd.init(process_sets=[hvd.ProcessSet([mine])])))
    say(f"initialized: {hvd.is_initialized()}")


def test_sets_that_differ_between_ranks_are_refused() -> None:
    for each in run_ranks(2, different_sets):
        assert each.lines[0].startswith("ValueError") and each.lines[1] == "initialized: False"


def start_within_a_small_limit() -> None:
    import resource
    from pathlib import Path

    limit = {"file size": resource.RLIMIT_FSIZE, "address space": resource.RLIMIT_AS}[os.environ["TEST_LIMIT"]]
    memory = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(
        limit, (memory + (6 << 20), resource.RLIM_INFINITY) if limit == resource.RLIMIT_AS else (4 << 20, -1)
    )
    say(failure(hvd.init))
    say(f"initialized: {hvd.is_initialized()}")


@pytest.mark.parametrize("limit", ["file size", "address space"])
def test_a_limit_that_is_too_small_is_named(limit: str) -> None:
    # One arena: a thread's own is mapped twice as large for a moment, which would count as memory that is free later.
    env = {"TEST_LIMIT": limit, "MALLOC_ARENA_MAX": "1"}
    for each in run_ranks(2, start_within_a_small_limit, env=env):
        assert each.code == 0, each.errors
        assert "initialized: False" in each.lines
        assert "limit" in each.lines[0] or "memory" in each.lines[0], each.lines
