"""Groups: one handle, one outcome, results in order."""

from __future__ import annotations

import numpy as np
import pytest
from data import Array, array_of, arrays, assert_same, reduced, rows_of

import horovod.numpy as hvd

SHAPES = [(3,), (2, 5), (), (0, 4), (100, 7)]
F32 = np.dtype(np.float32)


def test_allreduce() -> None:
    inputs = [array_of(hvd.rank(), F32, shape) for shape in SHAPES]
    expected = [reduced(arrays(F32, shape), hvd.Sum) for shape in SHAPES]
    results = hvd.grouped_allreduce(inputs, op=hvd.Sum)
    assert isinstance(results, list)
    for result, each in zip(results, expected, strict=True):
        assert_same(result, each)
    handle = hvd.grouped_allreduce_async(inputs, op=hvd.Sum, name="group")
    assert isinstance(handle, int)
    results_of_handle = hvd.synchronize(handle)
    assert isinstance(results_of_handle, tuple)
    for result, each in zip(results_of_handle, expected, strict=True):
        assert_same(result, each)


def test_allreduce_in_place() -> None:
    inputs = [array_of(hvd.rank(), F32, shape) for shape in SHAPES]
    expected = [reduced(arrays(F32, shape), hvd.Max) for shape in SHAPES]
    results = hvd.grouped_allreduce_(inputs, op=hvd.Max)
    assert isinstance(results, tuple)
    for result, given, each in zip(results, inputs, expected, strict=True):
        assert result is given
        assert_same(result, each)
    again = hvd.synchronize(hvd.grouped_allreduce_async_(inputs, op=hvd.Max))
    assert all(result is given for result, given in zip(again, inputs, strict=True))


def test_types_may_differ_within_a_group() -> None:
    inputs: list[Array] = [np.ones(3, dtype) for dtype in (np.float32, np.int64, np.float16)]
    for result, given in zip(hvd.grouped_allreduce(inputs, op=hvd.Sum), inputs, strict=True):
        assert_same(result, np.full(3, hvd.size(), given.dtype))


def test_allgather() -> None:
    rank, size = hvd.rank(), hvd.size()
    inputs = [np.full((rank + i, 2), rank * 10 + i) for i in range(3)]
    results = hvd.grouped_allgather(inputs)
    assert isinstance(results, tuple)
    for i, result in enumerate(results):
        assert_same(result, np.concatenate([np.full((r + i, 2), r * 10 + i) for r in range(size)]))
    results = hvd.synchronize(hvd.grouped_allgather_async(inputs, name="gathered"))
    assert [len(result) for result in results] == [size * (size - 1) // 2 + i * size for i in range(3)]


def test_reducescatter() -> None:
    shapes = [(7,), (3, 2), (16, 3)]
    inputs = [array_of(hvd.rank(), F32, shape) for shape in shapes]
    results = hvd.grouped_reducescatter(inputs, op=hvd.Sum)
    assert isinstance(results, list)
    asynchronous = hvd.synchronize(hvd.grouped_reducescatter_async(inputs, op=hvd.Sum))
    assert isinstance(asynchronous, tuple)
    for shape, *each in zip(shapes, results, asynchronous, strict=True):
        for result in each:
            expected = reduced(arrays(F32, shape), hvd.Sum)[rows_of(hvd.rank(), shape[0], hvd.size())]
            assert_same(result, expected)


def test_a_mistake_in_one_member_fails_the_group() -> None:
    if hvd.size() == 1:
        pytest.skip("needs two ranks")
    wrong = np.ones(4 if hvd.rank() == 0 else 5)
    with pytest.raises(hvd.HorovodInternalError):
        hvd.grouped_allreduce([np.ones(3), wrong, np.ones(2)], name="broken")
    assert_same(hvd.allreduce(np.ones(3), op=hvd.Max), np.ones(3))


def test_groups_are_matched_whatever_the_order_of_submission() -> None:
    names = [f"unordered.{i}" for i in range(10)]
    order = np.random.default_rng(hvd.rank()).permutation(10)
    handles = {
        i: hvd.grouped_allreduce_async([np.full(3, float(i)), np.full(2, -float(i))], name=names[i]) for i in order
    }
    for i in range(10):
        positive, negative = hvd.synchronize(handles[i])
        assert_same(positive, np.full(3, float(i)))
        assert_same(negative, np.full(2, -float(i)))
