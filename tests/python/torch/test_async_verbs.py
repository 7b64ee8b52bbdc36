"""Handles, names, threads, errors, join and barrier."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

import horovod.torch as hvd


def odd() -> int:
    return hvd.rank() % 2


def test_a_burst_is_really_asynchronous() -> None:
    """The last rank waits until the others have seen that nothing is done."""
    last = hvd.rank() == hvd.size() - 1
    values = [torch.full((1000,), float(i)) for i in range(50)]

    def start() -> list[int]:
        return [hvd.allreduce_async(each, name=f"burst.{i}", op=hvd.Max) for i, each in enumerate(values)]

    handles = [] if last else start()
    assert not any(hvd.poll(handle) for handle in handles)
    hvd.allgather(torch.ones(1), name="polled")
    handles = start() if last else handles
    for each, handle in zip(values, handles, strict=True):
        while not hvd.poll(handle):
            pass
        assert torch.equal(hvd.synchronize(handle), each)


def test_handles_are_small_ints_that_are_forgotten() -> None:
    first = hvd.allreduce_async(torch.ones(2))
    second = hvd.allreduce_async(torch.ones(2))
    assert isinstance(first, int) and second == first + 1
    assert hvd.synchronize(second) is not None and hvd.synchronize(first) is not None
    assert hvd.synchronize(first) is None
    for handle in (first, 10**9):
        with pytest.raises(ValueError):
            hvd.poll(handle)


@pytest.mark.usefixtures("numbered_anew")
def test_numbers_start_again_after_shutdown() -> None:
    hvd.barrier()
    hvd.shutdown()
    assert not hvd.is_initialized()
    hvd.init(process_sets="dynamic")
    assert hvd.allreduce_async(torch.ones(2)) == 1


@pytest.mark.usefixtures("numbered_anew")
def test_a_name_in_flight_cannot_be_used_again() -> None:
    late = hvd.rank() == 0
    if not late:
        handle = hvd.allreduce_async(torch.ones(3), name="twice", op=hvd.Sum)
        with pytest.raises(ValueError, match="twice"):
            hvd.allreduce_async_(torch.ones(3), name="twice", op=hvd.Sum)
    hvd.allgather(torch.ones(1), name="everyone tried")
    if late:
        handle = hvd.allreduce_async(torch.ones(3), name="twice", op=hvd.Sum)
    assert hvd.synchronize(handle).tolist() == [float(hvd.size())] * 3


DISAGREEMENTS: dict[str, Callable[[], object]] = {
    "shape": lambda: hvd.allreduce(torch.ones(17 + odd()), name="m"),
    "dimensions": lambda: hvd.allreduce(torch.ones(12) if odd() else torch.ones(3, 4), name="m"),
    "dtype": lambda: hvd.allreduce(torch.ones(4, dtype=torch.float32 if odd() else torch.int32), name="m"),
    "op": lambda: hvd.allreduce(torch.ones(4), name="m", op=hvd.Min if odd() else hvd.Max),
    "with a gradient": lambda: hvd.allreduce(torch.ones(3 + odd(), requires_grad=True), name="m"),
    "root": lambda: hvd.broadcast(torch.ones(4), odd(), name="m"),
    "columns": lambda: hvd.allgather(torch.ones(3, 4 + odd()), name="m"),
    "alltoall": lambda: hvd.alltoall(torch.ones(hvd.size(), 4 + odd()), name="m"),
    "rows": lambda: hvd.reducescatter(torch.ones(4 + odd(), 2), name="m"),
}


@pytest.mark.parametrize("what", DISAGREEMENTS)
def test_ranks_that_disagree_all_get_the_error(what: str) -> None:
    with pytest.raises(hvd.HorovodInternalError, match="m"):
        DISAGREEMENTS[what]()
    assert hvd.allreduce(torch.ones(2), op=hvd.Sum).tolist() == [float(hvd.size())] * 2


@pytest.mark.usefixtures("numbered_anew")
def test_threads_submit_and_wait_on_their_own() -> None:
    def work(thread: int) -> None:
        for i in range(20):
            values = torch.full((64,), float(thread * 100 + i))
            assert torch.equal(hvd.allreduce(values, name=f"{thread}.{i}", op=hvd.Max), values)
            started = [hvd.allgather_async(values[:1], name=f"{thread}.{i}.{j}") for j in range(3)]
            followed = values.clone().requires_grad_()
            hvd.allreduce(followed, name=f"{thread}.{i}.followed", op=hvd.Sum).sum().backward()
            assert followed.grad[0] == hvd.size()
            for handle in reversed(started):
                assert torch.equal(hvd.synchronize(handle), values[: hvd.size()])
            hvd.allreduce_(values, name=f"{thread}.{i}.in place", op=hvd.Sum)
            assert values[0] == hvd.size() * (thread * 100 + i)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))


@pytest.mark.usefixtures("numbered_anew")
def test_join() -> None:
    rank, size = hvd.rank(), hvd.size()
    for _ in range(2):
        for step in range(rank + 1):  # the last rank has most to do
            result = hvd.allreduce(torch.ones(3), name=f"step.{step}", op=hvd.Sum)
            assert result.tolist() == [float(size - step)] * 3
        assert hvd.join() == size - 1


def test_barrier_with_operations_in_flight() -> None:
    handles = [hvd.allreduce_async(torch.ones(100), name=f"in flight.{i}", op=hvd.Sum) for i in range(5)]
    hvd.barrier()
    assert all(hvd.synchronize(handle)[0] == hvd.size() for handle in handles)
