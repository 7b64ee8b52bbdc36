"""Ranks that disagree all get the error, and can continue afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

import horovod.numpy as hvd


@pytest.fixture(autouse=True)
def still_usable() -> Iterator[None]:
    if hvd.size() == 1:
        pytest.skip("needs two ranks")
    other = hvd.allreduce_async(np.ones(3), name="meanwhile", op=hvd.Sum)
    yield
    np.testing.assert_array_equal(hvd.synchronize(other), np.full(3, hvd.size()))
    np.testing.assert_array_equal(hvd.allreduce(np.ones(3), name="afterwards", op=hvd.Sum), np.full(3, hvd.size()))


def odd() -> bool:
    return hvd.rank() % 2 == 1


DISAGREEMENTS: dict[str, Callable[[], object]] = {
    "length": lambda: hvd.allreduce(np.ones(17 + odd()), name="m"),
    "dimensions": lambda: hvd.allreduce(np.ones((2, 6) if odd() else (3, 4)), name="m"),
    "number of dimensions": lambda: hvd.allreduce(np.ones(12 if odd() else (3, 4)), name="m"),
    "dtype": lambda: hvd.allreduce(np.ones(4, np.float32 if odd() else np.int32), name="m"),
    "reduce op": lambda: hvd.allreduce(np.ones(4), name="m", op=hvd.Min if odd() else hvd.Max),
    "prescale": lambda: hvd.allreduce(np.ones(4), name="m", prescale_factor=1.0 + odd()),
    "postscale": lambda: hvd.allreduce(np.ones(4), name="m", postscale_factor=1.0 + odd()),
    "root": lambda: hvd.broadcast(np.ones(4), int(odd()), name="m"),
    "broadcast shape": lambda: hvd.broadcast(np.ones(4 + odd()), 0, name="m"),
    "broadcast dtype": lambda: hvd.broadcast(np.ones(4, np.float32 if odd() else np.int32), 0, name="m"),
    "allgather columns": lambda: hvd.allgather(np.ones((3, 4 + odd())), name="m"),
    "allgather dimensions": lambda: hvd.allgather(np.ones((3, 4) if odd() else (3, 4, 1)), name="m"),
    "allgather dtype": lambda: hvd.allgather(np.ones(3, np.uint8 if odd() else np.int8), name="m"),
    "alltoall columns": lambda: hvd.alltoall(np.ones((hvd.size(), 4 + odd())), name="m"),
    "alltoall dtype": lambda: hvd.alltoall(np.ones(hvd.size(), np.uint8 if odd() else np.int8), name="m"),
    "reducescatter rows": lambda: hvd.reducescatter(np.ones((4 + odd(), 2)), name="m"),
    "reducescatter op": lambda: hvd.reducescatter(np.ones(4), name="m", op=hvd.Sum if odd() else hvd.Average),
    "reducescatter prescale": lambda: hvd.reducescatter(np.ones(4), name="m", prescale_factor=1.0 + odd()),
}


@pytest.mark.parametrize("what", DISAGREEMENTS)
def test_a_disagreement_is_an_error_on_every_rank(what: str) -> None:
    for _ in range(2):
        with pytest.raises(hvd.HorovodInternalError):
            DISAGREEMENTS[what]()
    texts = hvd.allgather_object(text_of(DISAGREEMENTS[what]), name="texts")
    assert all(texts) and len(set(texts)) == 1


def text_of(call: Callable[[], object]) -> str:
    try:
        call()
    except hvd.HorovodInternalError as error:
        return str(error)
    return ""


def test_the_error_names_the_tensor() -> None:
    with pytest.raises(hvd.HorovodInternalError, match=r"allreduce\.some\.gradient"):
        hvd.allreduce(np.ones(3 + odd()), name="some.gradient")


def test_a_disagreement_on_a_known_name() -> None:
    """The second time the ranks have agreed on the name before."""
    for length in (4, 5):
        for _ in range(3):
            hvd.allreduce(np.ones(length), name="known")
        with pytest.raises(hvd.HorovodInternalError):
            hvd.allreduce(np.ones(length + odd()), name="known")
    np.testing.assert_array_equal(hvd.allreduce(np.ones(5), name="known"), np.ones(5))


def test_a_failed_handle_is_forgotten() -> None:
    handle = hvd.allreduce_async(np.ones(3 + odd()), name="forgotten")
    with pytest.raises(hvd.HorovodInternalError):
        hvd.synchronize(handle)
    assert hvd.synchronize(handle) is None
    with pytest.raises(ValueError):
        hvd.poll(handle)
