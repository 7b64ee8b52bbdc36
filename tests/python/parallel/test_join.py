"""Join: ranks without data let the others continue."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import horovod.numpy as hvd

pytestmark = pytest.mark.usefixtures("numbered_anew")


def steps_then_join(name: str, op: int, tensors: int = 1) -> tuple[list[float], int]:
    """Rank r takes part in r + 1 steps, so the last rank is alone in the last step."""
    results = []
    for step in range(hvd.rank() + 1):
        handles = [
            hvd.allreduce_async(np.full(5, hvd.rank() + 1.0), name=f"{name}.{step}.{i}", op=op) for i in range(tensors)
        ]
        values = [hvd.synchronize(handle)[0] for handle in handles]
        assert len(set(values)) == 1
        results.append(values[0])
    return results, hvd.join()


@pytest.mark.parametrize("known", [False, True], ids=["new names", "known names"])
@pytest.mark.parametrize("tensors", [1, 5])
def test_joined_ranks_count_as_zeros(known: bool, tensors: int) -> None:
    size = hvd.size()
    name = f"join.{known}.{tensors}"
    if known:
        for step in range(size):
            for i in range(tensors):
                hvd.allreduce(np.full(5, 1.0), name=f"{name}.{step}.{i}", op=hvd.Sum)
    for _ in range(2):
        results, last = steps_then_join(name, hvd.Sum, tensors)
        assert results == [sum(range(step + 1, size + 1)) for step in range(hvd.rank() + 1)]
        assert last == size - 1


def test_average_divides_by_the_full_size() -> None:
    size = hvd.size()
    results, _ = steps_then_join("average", hvd.Average)
    np.testing.assert_allclose(results, [sum(range(step + 1, size + 1)) / size for step in range(hvd.rank() + 1)])


@pytest.mark.parametrize("op", [hvd.Min, hvd.Product])
def test_zeros_also_for_other_operations(op: int) -> None:
    results, _ = steps_then_join(f"zeros.{op}", op)
    assert all(result == 0 for result in results[1:])
    assert results[0] != 0


def test_all_join_at_once() -> None:
    for _ in range(5):
        lasts = hvd.allgather(np.array([hvd.join()]), name="lasts")
        assert len(set(lasts.tolist())) == 1 and 0 <= lasts[0] < hvd.size()
    np.testing.assert_array_equal(hvd.allreduce(np.ones(2), name="after joins", op=hvd.Sum), np.full(2, hvd.size()))


@pytest.mark.parametrize("verb", ["allgather", "broadcast", "alltoall", "reducescatter"])
def test_other_verbs_fail_while_a_rank_has_joined(verb: str) -> None:
    if hvd.size() == 1:
        pytest.skip("needs two ranks")
    calls: dict[str, Callable[[], object]] = {
        "allgather": lambda: hvd.allgather(np.ones((2, 2)), name="joined"),
        "broadcast": lambda: hvd.broadcast(np.ones(2), hvd.size() - 1, name="joined"),
        "alltoall": lambda: hvd.alltoall(np.ones(hvd.size()), name="joined"),
        "reducescatter": lambda: hvd.reducescatter(np.ones(4), name="joined"),
    }
    if hvd.rank() > 0:
        with pytest.raises(hvd.HorovodInternalError):
            calls[verb]()
        hvd.allreduce(np.ones(2), name="joined")
    last = hvd.join()
    assert last != 0
    assert set(hvd.allgather(np.array([last]), name="lasts").tolist()) == {last}
    calls[verb]()
