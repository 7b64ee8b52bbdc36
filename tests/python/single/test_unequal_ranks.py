"""Ranks that were started unequal: on other cores, with other knobs. What decides how data are cut is settled when they
meet; how a rank waits is its own choice."""

from __future__ import annotations

import os

import numpy as np
import pytest
from ranks import failure, run_ranks, say

import horovod.numpy as hvd


def exchange_much(env: dict[int, dict[str, str]], cores: dict[int, set[int]]) -> None:
    """Many sizes and types with every verb, compared with what they must be. `env` and `cores` are by rank."""
    rank = int(os.environ["HOROVOD_RANK"])
    os.environ.update(env.get(rank, {}))
    if rank in cores:
        os.sched_setaffinity(0, cores[rank])
    hvd.init()
    size = hvd.size()
    for count in (1, 8193, 25600, 300_001):
        for dtype in ("float32", "uint8"):
            wave = np.arange(count) % 50

            def mine(number: int, wave: np.ndarray = wave, dtype: str = dtype) -> np.ndarray:
                return (wave + number).astype(dtype)

            for again in range(2):  # the second time as the plan cache has it
                name = f"{dtype}.{count}"
                total = hvd.allreduce(mine(rank), op=hvd.Sum, name="sum" + name)
                assert np.array_equal(total, (wave * size + sum(range(size))).astype(dtype)), (name, again)
                gathered = hvd.allgather(mine(rank), name="gather" + name)
                assert np.array_equal(gathered, np.concatenate([mine(each) for each in range(size)])), (name, again)
                root = size - 1
                assert np.array_equal(hvd.broadcast(mine(rank), root, name="broadcast" + name), mine(root)), name
                part = hvd.reducescatter(np.tile(mine(rank), size), op=hvd.Sum, name="scatter" + name)
                assert np.array_equal(part, total), (name, again)
    say("right")


@pytest.mark.parametrize("hosts", [[2], [4], [2, 2]], ids=str)
def test_ranks_may_wait_differently(hosts: list[int]) -> None:
    """The time to spin, and knobs of which those of rank 0 count, are not the same on all ranks."""
    env = {1: {"HOROVOD_SPIN_US": "0"}, 2: {"HOROVOD_SPIN_US": "500", "HOROVOD_YIELD_US": "0"}}
    run_ranks(hosts, exchange_much, env, {})


@pytest.mark.parametrize("one", [0, 1], ids=lambda rank: f"set on rank {rank}")
def test_knobs_of_one_rank_that_concern_no_other(one: int) -> None:
    settings = {
        "HOROVOD_CYCLE_TIME": "1",
        "HOROVOD_COLLECTIVE_TIMEOUT_SECONDS": "100",
        "HOROVOD_FUSION_THRESHOLD": "1000",
        "HOROVOD_CACHE_CAPACITY": "3",
        "HOROVOD_STALL_CHECK_TIME_SECONDS": "5",
        "HOROVOD_DISABLE_GROUP_FUSION": "1",
        "HOROVOD_TCP_STREAMS": "3",
        "HOROVOD_AUTOTUNE": "1",
    }
    run_ranks(2, exchange_much, {one: settings}, {})
    run_ranks([1, 1], exchange_much, {one: settings}, {})


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
@pytest.mark.parametrize("hosts", [[2], [1, 2]], ids=str)
def test_ranks_may_have_other_cores(hosts: list[int]) -> None:
    """Masks that are nested, equal and disjoint; each rank alone would come to another number of cores."""
    first, second = sorted(os.sched_getaffinity(0))[:2]
    for cores in ({0: {first}}, {0: {first}, 1: {first}}, {0: {first}, 1: {second}}):
        run_ranks(hosts, exchange_much, {}, cores)


def meet(env: dict[int, dict[str, str]]) -> None:
    os.environ.update(env.get(int(os.environ["HOROVOD_RANK"]), {}))
    say(failure(hvd.init))


@pytest.mark.parametrize(
    ("hosts", "name", "value", "text"),
    [
        ([3], "HOROVOD_SHM_CHUNK_BYTES", "65536", "131072 on ranks 0, 2, 65536 on rank 1"),
        ([3], "HOROVOD_ONE_SHOT_LIMIT", "64", "32768 on ranks 0, 2, 64 on rank 1"),
        ([2], "HOROVOD_HIERARCHICAL_ALLREDUCE", "0", "0 on rank 1, 1 on rank 0"),
        ([1, 1, 1], "HOROVOD_HIERARCHICAL_ALLGATHER", "0", "0 on rank 1, 1 on ranks 0, 2"),
        ([1, 1, 1], "HOROVOD_SILENCE_SECONDS", "7", "5 on ranks 0, 2, 7 on rank 1"),
    ],
)
def test_knobs_that_would_cut_differently_are_refused_on_every_rank(
    hosts: list[int], name: str, value: str, text: str
) -> None:
    for ended in run_ranks(hosts, meet, {1: {name: value}}):
        assert f"{name} is {text}; set the same value" in ended.output


def test_hosts_may_have_shared_memory_of_their_own_shape() -> None:
    small = {"HOROVOD_SHM_RING_BYTES": "65536", "HOROVOD_SHM_CHUNK_BYTES": "8192", "HOROVOD_ONE_SHOT_LIMIT": "1024"}
    run_ranks([2, 1], exchange_much, {2: small}, {})
