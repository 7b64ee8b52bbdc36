"""Asynchronous operations: handles, names, order and threads."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from data import assert_same

import horovod.numpy as hvd


def test_a_burst_ends_without_anybody_waiting() -> None:
    handles = [hvd.allreduce_async(np.full(10_000, float(i)), op=hvd.Max, name=f"burst.{i}") for i in range(200)]
    for i, handle in reversed(list(enumerate(handles))):
        while not hvd.poll(handle):
            time.sleep(0)
        assert_same(hvd.synchronize(handle), np.full(10_000, float(i)))


def test_poll_is_false_until_all_ranks_submitted() -> None:
    if hvd.size() == 1:
        pytest.skip("needs two ranks")
    late = hvd.rank() == 0
    handle = 0 if late else hvd.allreduce_async(np.ones(3), name="late", op=hvd.Sum)
    if not late:
        assert not hvd.poll(handle)
    hvd.allgather(np.ones(1), name="everyone polled")
    if late:
        handle = hvd.allreduce_async(np.ones(3), name="late", op=hvd.Sum)
    assert_same(hvd.synchronize(handle), np.full(3, float(hvd.size())))


@pytest.mark.usefixtures("numbered_anew")
def test_a_name_in_flight_cannot_be_used_again() -> None:
    if hvd.size() == 1:
        pytest.skip("needs two ranks")
    late = hvd.rank() == 0
    handle = 0
    if not late:
        handle = hvd.allreduce_async(np.ones(3), name="twice", op=hvd.Sum)
        with pytest.raises(ValueError, match="twice"):
            hvd.allreduce_async(np.full(3, 7.0), name="twice", op=hvd.Sum)
    hvd.allgather(np.ones(1), name="everyone tried twice")
    if late:
        handle = hvd.allreduce_async(np.ones(3), name="twice", op=hvd.Sum)
    assert_same(hvd.synchronize(handle), np.full(3, float(hvd.size())))


def test_a_name_can_be_used_again_with_another_shape_and_type() -> None:
    for dtype, shape in ((np.float32, (3,)), (np.float32, (4, 2)), (np.int64, (4, 2)), (np.float64, ())):
        for _ in range(3):
            result = hvd.allreduce(np.ones(shape, dtype), name="reused", op=hvd.Sum)
            assert_same(result, np.full(shape, hvd.size(), dtype))


def test_the_same_name_may_be_in_flight_for_different_verbs() -> None:
    reduced = hvd.allreduce_async(np.ones(2), name="shared", op=hvd.Sum)
    gathered = hvd.allgather_async(np.ones(2), name="shared")
    sent = hvd.broadcast_async(np.ones(2), 0, name="shared")
    assert_same(hvd.synchronize(sent), np.ones(2))
    assert_same(hvd.synchronize(gathered), np.ones(2 * hvd.size()))
    assert_same(hvd.synchronize(reduced), np.full(2, float(hvd.size())))


def test_any_order_on_any_rank() -> None:
    """Every rank submits and waits in an order of its own."""
    order = np.random.default_rng(hvd.rank()).permutation(60)
    handles = {}
    for i in order:
        values = np.full((2, i % 7), float(i))
        if i % 3 == 0:
            handles[i] = hvd.allreduce_async(values, name=f"any.{i}", op=hvd.Max)
        elif i % 3 == 1:
            handles[i] = hvd.allgather_async(values, name=f"any.{i}")
        else:
            handles[i] = hvd.broadcast_async(values, int(i) % hvd.size(), name=f"any.{i}")
    for i in np.random.default_rng(100 + hvd.rank()).permutation(60):
        rows = 2 * hvd.size() if i % 3 == 1 else 2
        assert_same(hvd.synchronize(handles[i]), np.full((rows, i % 7), float(i)))


def test_many_threads_submit_and_wait() -> None:
    def work(thread: int) -> None:
        for i in range(6):
            values = np.full(50, float(thread * 100 + i))
            assert_same(hvd.allreduce(values, name=f"thread.{thread}.{i}", op=hvd.Max), values)
            handle = hvd.allgather_async(values[:1], name=f"thread.{thread}.{i}")
            assert_same(hvd.synchronize(handle), np.full(hvd.size(), values[0]))

    def start_all(thread: int) -> list[int]:
        return [hvd.allreduce_async(np.ones(3), name=f"all.{thread}.{i}", op=hvd.Sum) for i in range(15)]

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(start_all, range(2)))  # never waited for
        handles = [handle for each in pool.map(start_all, range(2, 6)) for handle in each]
        list(pool.map(work, range(8)))
        for result in pool.map(hvd.synchronize, reversed(handles)):
            assert_same(result, np.full(3, float(hvd.size())))
    assert len(set(handles)) == len(handles)


def test_arrays_live_until_the_operation_is_done() -> None:
    """Inputs and outputs without another reference; their memory must not be reused."""
    handles = [hvd.allreduce_async(np.full(100_000, float(i)), name=f"kept.{i}", op=hvd.Max) for i in range(20)]
    others = [np.full(100_000, -1.0) for _ in range(20)]
    for i, handle in enumerate(handles):
        assert (hvd.synchronize(handle) == i).all()
    assert all((other == -1).all() for other in others)
