"""Arrays that every rank can compute for all ranks, and what the reductions of them must give."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

import horovod.numpy as hvd

Array = NDArray[Any]

INTEGERS = [np.dtype(name) for name in ("uint8", "int8", "uint16", "int16", "int32", "int64")]
FLOATS = [np.dtype(name) for name in ("float16", "float32", "float64")]
COMPLEX = [np.dtype(name) for name in ("complex64", "complex128")]
BOOL = np.dtype(np.bool_)
try:
    import ml_dtypes

    FLOATS.append(np.dtype(ml_dtypes.bfloat16))
except ImportError:  # bfloat16 is not tested then
    pass
ALL = [*INTEGERS, *FLOATS, BOOL, *COMPLEX]
NOT_SCALABLE = [np.dtype(np.uint16), np.dtype(np.int16), BOOL]
SCALABLE = [dtype for dtype in ALL if dtype not in NOT_SCALABLE]

SHAPES: list[tuple[int, ...]] = [(), (0,), (1,), (17,), (3, 0, 2), (5, 7), (2, 3, 4), (1000, 3)]

REDUCE: dict[int, Callable[[Array, Array], Array]] = {
    hvd.Sum: np.add,
    hvd.Min: np.minimum,
    hvd.Max: np.maximum,
    hvd.Product: np.multiply,
}


def array_of(rank: int, dtype: np.dtype[Any], shape: tuple[int, ...], key: str = "") -> Array:
    """Small whole numbers, so that every order of adding gives the same, in every type."""
    generator = np.random.default_rng([rank, zlib.crc32(f"{dtype.name}{shape}{key}".encode())])
    return generator.integers(0, 3, shape).astype(dtype)


def arrays(dtype: np.dtype[Any], shape: tuple[int, ...], ranks: list[int] | None = None, key: str = "") -> list[Array]:
    """The arrays of all ranks."""
    return [array_of(rank, dtype, shape, key) for rank in (range(hvd.size()) if ranks is None else ranks)]


def reduced(inputs: list[Array], op: int) -> Array:
    """The reduction of the inputs in their own type."""
    result = inputs[0]
    for each in inputs[1:]:
        result = REDUCE[op](result, each)
    return np.asarray(result, inputs[0].dtype)


def scaled(values: Array, factor: float) -> Array:
    """Integers are scaled in float64 and truncated, 16-bit types in float32."""
    if values.dtype.kind in "iu":
        return np.trunc(values.astype(np.float64) * factor).astype(values.dtype)
    if values.dtype.itemsize == 2:
        return (values.astype(np.float32) * np.float32(factor)).astype(values.dtype)
    return np.asarray(values * values.dtype.type(factor), values.dtype)


def rows_of(rank: int, rows: int, size: int) -> slice:
    """The rows that reducescatter gives to a rank."""
    each, more = divmod(rows, size)
    start = rank * each + min(rank, more)
    return slice(start, start + each + (rank < more))


def assert_same(result: Array, expected: Array) -> None:
    assert result.dtype == expected.dtype
    assert result.shape == expected.shape
    np.testing.assert_array_equal(result, expected)
