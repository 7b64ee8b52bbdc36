"""Allreduce: all types, operations, factors and shapes."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
from data import (
    ALL,
    BOOL,
    COMPLEX,
    FLOATS,
    INTEGERS,
    NOT_SCALABLE,
    SCALABLE,
    SHAPES,
    array_of,
    arrays,
    assert_same,
    reduced,
    scaled,
)

import horovod.numpy as hvd

DType = np.dtype[Any]


@pytest.mark.parametrize("dtype", ALL, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_sum(dtype: DType, shape: tuple[int, ...]) -> None:
    values = array_of(hvd.rank(), dtype, shape)
    before = values.copy()
    assert_same(hvd.allreduce(values, op=hvd.Sum), reduced(arrays(dtype, shape), hvd.Sum))
    assert_same(values, before)


@pytest.mark.parametrize("op", [hvd.Min, hvd.Max, hvd.Product])
@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS, BOOL], ids=str)
def test_other_operations(dtype: DType, op: int) -> None:
    for shape in ((), (0,), (33, 5)):
        inputs = arrays(dtype, shape)
        assert_same(hvd.allreduce(inputs[hvd.rank()], op=op), reduced(inputs, op))


@pytest.mark.parametrize("dtype", SCALABLE, ids=str)
def test_average_is_the_default_and_truncates_integers(dtype: DType) -> None:
    inputs = arrays(dtype, (4, 50))
    expected = scaled(reduced(inputs, hvd.Sum), 1.0 / hvd.size())
    result = hvd.allreduce(inputs[hvd.rank()])
    assert result.dtype == dtype
    if dtype in INTEGERS:
        assert_same(result, expected)
    else:
        np.testing.assert_allclose(result.astype(np.complex128), expected.astype(np.complex128), rtol=1e-2)
    assert_same(hvd.allreduce(inputs[hvd.rank()], op=hvd.Average), result)


@pytest.mark.parametrize("dtype", SCALABLE, ids=str)
def test_factors_come_before_and_after(dtype: DType) -> None:
    inputs = arrays(dtype, (3, 21))
    for prescale, postscale in ((2.0, 1.0), (1.0, 3.0), (0.5, 4.0)):
        expected = scaled(reduced([scaled(each, prescale) for each in inputs], hvd.Sum), postscale)
        result = hvd.allreduce(inputs[hvd.rank()], op=hvd.Sum, prescale_factor=prescale, postscale_factor=postscale)
        assert_same(result, expected)


@pytest.mark.parametrize("dtype", NOT_SCALABLE, ids=str)
def test_types_that_cannot_be_scaled(dtype: DType) -> None:
    values = array_of(hvd.rank(), dtype, (5,))
    with pytest.raises(hvd.HorovodInternalError):
        hvd.allreduce(values, op=hvd.Sum, prescale_factor=0.5)
    if hvd.size() > 1:
        with pytest.raises(hvd.HorovodInternalError):
            hvd.allreduce(values, op=hvd.Average)


@pytest.mark.parametrize("dtype", COMPLEX, ids=str)
def test_complex_parts_are_kept_apart(dtype: DType) -> None:
    size = hvd.size()
    result = hvd.allreduce(np.full(9, complex(hvd.rank(), -1), dtype), op=hvd.Sum)
    assert_same(result, np.full(9, complex(size * (size - 1) / 2, -size), dtype))


def test_positional_arguments_of_scripts() -> None:
    values = np.full(5, 1.0 + hvd.rank(), np.float32)
    result = hvd.allreduce_(values, None, "positional", hvd.Sum)
    assert result is values
    np.testing.assert_array_equal(values, np.full(5, hvd.size() * (hvd.size() + 1) / 2))


def test_in_place_and_handles() -> None:
    values = np.full((2, 3), float(hvd.rank()))
    handle = hvd.allreduce_async_(values, op=hvd.Max, name="in place")
    assert hvd.synchronize(handle) is values
    np.testing.assert_array_equal(values, np.full((2, 3), hvd.size() - 1.0))
    kept = np.full(4, float(hvd.rank()))
    result = hvd.synchronize(hvd.allreduce_async(kept, op=hvd.Max))
    np.testing.assert_array_equal(result, np.full(4, hvd.size() - 1.0))
    np.testing.assert_array_equal(kept, np.full(4, float(hvd.rank())))


def test_rows_of_a_larger_array_and_read_only_input() -> None:
    values = np.zeros((4, 3))
    hvd.allreduce_(values[1:3], op=hvd.Sum, name="empty rows")
    part = values[1:3]
    part += 1
    hvd.allreduce_(part, op=hvd.Sum)
    np.testing.assert_array_equal(values[:, 0], [0, hvd.size(), hvd.size(), 0])
    values.flags.writeable = False
    np.testing.assert_array_equal(hvd.allreduce(values, op=hvd.Min), values)


def test_scalars() -> None:
    result = hvd.allreduce(np.float64(hvd.rank()), op=hvd.Sum)  # type: ignore[arg-type]
    assert result.shape == () and result == hvd.size() * (hvd.size() - 1) / 2


def test_large() -> None:
    count = 3_000_001
    values = np.arange(count, dtype=np.float32) % 1024 + hvd.rank()
    expected = (np.arange(count, dtype=np.float32) % 1024) * hvd.size() + hvd.size() * (hvd.size() - 1) / 2
    assert_same(hvd.allreduce(values, op=hvd.Sum), expected.astype(np.float32))


@pytest.mark.parametrize("dtype", [dtype for dtype in FLOATS if dtype.itemsize == 2], ids=str)
def test_16_bit_types_are_added_in_float32(dtype: DType) -> None:
    if os.environ.get("HOROVOD_CPU_OPERATIONS") == "mpi" and hvd.size() > 2:
        pytest.skip("MPI reduces pair by pair, and rounds after each")
    """One large value and many small ones, each too small to change the large one in 16 bits.

    Between hosts the sums of the hosts travel in 16 bits and are rounded once more.
    """
    large = 2048.0 if dtype == np.float16 else 256.0
    values = np.full(100, large if hvd.rank() == 0 else 1.0, dtype)
    exact = np.float32(large) + np.float32(hvd.size() - 1)
    result = hvd.allreduce(values, op=hvd.Sum)
    if hvd.local_size() == hvd.size():
        assert_same(result, np.full(100, exact, np.float32).astype(dtype))
    else:
        np.testing.assert_allclose(result.astype(np.float32), exact, rtol=hvd.size() / large)


def test_every_rank_gets_the_same_bits() -> None:
    values = np.random.default_rng(hvd.rank()).standard_normal(10_007).astype(np.float32)
    result = hvd.allreduce(values)
    assert_same(hvd.broadcast(result, 0), result)
    assert_same(hvd.allreduce(values), result)


def test_compression_reduces_in_float16() -> None:
    values = np.full(10, 1.0 + hvd.rank())
    result = hvd.allreduce(values, op=hvd.Sum, compression=hvd.Compression.fp16)
    assert_same(result, np.full(10, hvd.size() * (hvd.size() + 1) / 2))
    tiny = hvd.allreduce(np.full(10, 1e-12), op=hvd.Sum, compression=hvd.Compression.fp16)
    assert_same(tiny, np.zeros(10))
