"""Allgather, broadcast, alltoall and reducescatter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from data import ALL, COMPLEX, FLOATS, INTEGERS, NOT_SCALABLE, array_of, arrays, assert_same, reduced, rows_of, scaled

import horovod.numpy as hvd

DType = np.dtype[Any]


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_allgather_of_different_rows(dtype: DType) -> None:
    shapes = [((rank * 3) % 4, 2, 3) for rank in range(hvd.size())]  # rank 0 has no row
    inputs = [array_of(rank, dtype, shape) for rank, shape in enumerate(shapes)]
    expected = np.concatenate(inputs)
    assert_same(hvd.allgather(inputs[hvd.rank()]), expected)
    assert_same(hvd.synchronize(hvd.allgather_async(inputs[hvd.rank()], name="gathered")), expected)


def test_allgather_of_nothing() -> None:
    assert_same(hvd.allgather(np.zeros((0, 3))), np.zeros((0, 3)))
    assert_same(hvd.allgather(np.zeros((2, 0))), np.zeros((2 * hvd.size(), 0)))


def test_allgather_of_a_scalar_is_refused() -> None:
    with pytest.raises(hvd.HorovodInternalError):
        hvd.allgather(np.array(1.0))
    with pytest.raises(hvd.HorovodInternalError):
        hvd.synchronize(hvd.allgather_async(np.array(1.0)))


def test_results_in_the_engines_memory_stay_and_can_be_changed() -> None:
    kept = [hvd.allgather(np.full((1000, 3), float(i + hvd.rank()))) for i in range(20)]
    for i, result in enumerate(kept):
        result += 1
        assert_same(result[::1000, 0].copy(), np.arange(hvd.size()) + i + 1.0)


@pytest.mark.parametrize("dtype", ALL, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (11,), (3, 5, 2)], ids=str)
def test_broadcast_from_every_root(dtype: DType, shape: tuple[int, ...]) -> None:
    for root in range(hvd.size()):
        values = array_of(hvd.rank(), dtype, shape, str(root))
        before = values.copy()
        expected = array_of(root, dtype, shape, str(root))
        assert_same(hvd.broadcast(values, root), expected)
        assert_same(values, before)
        assert hvd.broadcast_(values, root) is values
        assert_same(values, expected)


def test_broadcast_with_handles() -> None:
    values = np.full(3, float(hvd.rank()))
    root = hvd.size() - 1
    assert_same(hvd.synchronize(hvd.broadcast_async(values, root)), np.full(3, float(root)))
    assert hvd.synchronize(hvd.broadcast_async_(values, root)) is values
    assert_same(values, np.full(3, float(root)))


def test_broadcast_from_a_rank_that_is_not_there() -> None:
    for root in (-1, hvd.size()):
        with pytest.raises(ValueError):
            hvd.broadcast(np.ones(2), root)


@pytest.mark.parametrize("as_list", [True, False])
def test_broadcast_parameters(as_list: bool) -> None:
    arrays_of_rank = {f"layer{i}": np.full((i + 1, 2), float(hvd.rank())) for i in range(12)}
    given: Any = list(arrays_of_rank.items()) if as_list else arrays_of_rank
    hvd.broadcast_parameters(given, hvd.size() - 1)
    for values in arrays_of_rank.values():
        assert (values == hvd.size() - 1).all()
    unnamed = [np.full(2, float(hvd.rank())), np.full(3, float(hvd.rank()))]
    hvd.broadcast_parameters([(None, unnamed[0]), unnamed[1]], 0)
    assert all((values == 0).all() for values in unnamed)


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_alltoall_with_splits(dtype: DType) -> None:
    """Rank s sends (s + r) % 3 rows to rank r; one row more than that is not sent."""
    rank, size = hvd.rank(), hvd.size()
    splits = [[(source + target) % 3 for target in range(size)] for source in range(size)]
    inputs = [array_of(source, dtype, (sum(splits[source]) + 1, 2)) for source in range(size)]
    ends = [np.cumsum(each) for each in splits]
    expected = np.concatenate([inputs[s][ends[s][rank] - splits[s][rank] : ends[s][rank]] for s in range(size)])
    received = np.array([splits[source][rank] for source in range(size)], np.int32)
    for given in (splits[rank], np.array(splits[rank], np.int32)):
        result = hvd.alltoall(inputs[rank], given)
        assert isinstance(result, tuple)
        assert_same(result[0], expected)
        assert_same(result[1], received)
    output, rows = hvd.synchronize(hvd.alltoall_async(inputs[rank], splits[rank]))
    assert_same(output, expected)
    assert_same(rows, received)


def test_alltoall_in_even_parts() -> None:
    rank, size = hvd.rank(), hvd.size()
    values = np.repeat(np.arange(size) * 100 + rank, 2)
    expected = np.repeat(np.arange(size) + rank * 100, 2)
    assert_same(np.asarray(hvd.alltoall(values)), expected)
    output, received = hvd.synchronize(hvd.alltoall_async(values))
    assert_same(output, expected)
    assert_same(received, np.full(size, 2, np.int32))
    with_empty_splits = hvd.alltoall(values, [])
    assert_same(with_empty_splits[0], expected)


def test_alltoall_of_nothing() -> None:
    size = hvd.size()
    output, received = hvd.alltoall(np.zeros((0, 3)), [0] * size)
    assert_same(output, np.zeros((0, 3)))
    assert_same(received, np.zeros(size, np.int32))
    assert_same(np.asarray(hvd.alltoall(np.zeros((0, 3)))), np.zeros((0, 3)))
    output, received = hvd.alltoall(np.ones((5, 3)), [0] * size)
    assert output.shape == (0, 3)


def test_alltoall_with_bad_splits() -> None:
    size = hvd.size()
    for splits in ([1] * (size + 1), [2] * size, [-1] + [1] * (size - 1), [1.0] * size):
        with pytest.raises(ValueError):
            hvd.alltoall(np.ones(size), splits)
    if size > 1:
        with pytest.raises(ValueError):
            hvd.alltoall(np.ones(size + 1))


@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS, *COMPLEX], ids=str)
def test_reducescatter_of_any_number_of_rows(dtype: DType) -> None:
    rank, size = hvd.rank(), hvd.size()
    for rows in (0, 1, size - 1, size, size + 1, 2 * size + 1, 103):
        inputs = arrays(dtype, (rows, 3))
        mine = rows_of(rank, rows, size)
        assert_same(hvd.reducescatter(inputs[rank], op=hvd.Sum), reduced(inputs, hvd.Sum)[mine])
        assert_same(hvd.synchronize(hvd.reducescatter_async(inputs[rank], op=hvd.Sum)), reduced(inputs, hvd.Sum)[mine])


@pytest.mark.parametrize("dtype", [dtype for dtype in INTEGERS if dtype not in NOT_SCALABLE], ids=str)
def test_reducescatter_averages_by_default_and_scales(dtype: DType) -> None:
    rank, size = hvd.rank(), hvd.size()
    inputs = arrays(dtype, (2 * size + 1,))
    mine = rows_of(rank, 2 * size + 1, size)
    assert_same(hvd.reducescatter(inputs[rank]), scaled(reduced(inputs, hvd.Sum), 1.0 / size)[mine])
    expected = scaled(reduced([scaled(each, 2.0) for each in inputs], hvd.Sum), 3.0)[mine]
    assert_same(hvd.reducescatter(inputs[rank], op=hvd.Sum, prescale_factor=2.0, postscale_factor=3.0), expected)


def test_reducescatter_knows_sum_and_average_only() -> None:
    for op in (hvd.Adasum, hvd.Min, hvd.Max, hvd.Product):
        with pytest.raises(hvd.HorovodInternalError):
            hvd.reducescatter(np.ones(4), op=op)
    with pytest.raises(ValueError):
        hvd.reducescatter(np.array(1.0))
