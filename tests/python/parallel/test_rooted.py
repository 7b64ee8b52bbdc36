"""Reduce, gather and scatter with a root; send and recv between two ranks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from data import ALL, array_of, assert_same, rows_of

import horovod.numpy as hvd

DType = np.dtype[Any]


@pytest.mark.parametrize("dtype", [np.dtype(np.int32), np.dtype(np.float32), np.dtype(np.float64)], ids=str)
def test_reduce_gives_the_root_what_allreduce_gives(dtype: DType) -> None:
    for root in range(hvd.size()):
        for shape in ((), (0,), (5, 3), (100000,)):
            values = array_of(hvd.rank(), dtype, shape, str(root))
            before = values.copy()
            expected = hvd.allreduce(values, op=hvd.Sum)
            result = hvd.reduce(values, root, op=hvd.Sum)
            assert_same(values, before)
            if hvd.rank() == root:
                assert_same(result, expected)
            else:
                assert result is None
    handle = hvd.reduce_async(np.ones(3), 0)
    result = hvd.synchronize(handle)
    assert (result is None) == (hvd.rank() != 0)


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_gather_of_different_rows(dtype: DType) -> None:
    shapes = [((rank * 3) % 4, 2, 3) for rank in range(hvd.size())]  # rank 0 has no row
    inputs = [array_of(rank, dtype, shape) for rank, shape in enumerate(shapes)]
    for root in range(hvd.size()):
        result = hvd.gather(inputs[hvd.rank()], root)
        if hvd.rank() == root:
            assert_same(result, np.concatenate(inputs))
        else:
            assert result is None


@pytest.mark.parametrize("dtype", ALL, ids=str)
@pytest.mark.parametrize("rows", [0, 1, 7, 64])
def test_scatter_shares_out_rows_as_reducescatter(dtype: DType, rows: int) -> None:
    for root in range(hvd.size()):
        values = array_of(root, dtype, (rows, 2), "scattered")
        given = values if hvd.rank() == root else np.zeros_like(values)
        assert_same(hvd.scatter(given, root), values[rows_of(hvd.rank(), rows, hvd.size())])


def test_messages_go_round() -> None:
    if hvd.size() < 2:
        return
    ahead, behind = (hvd.rank() + 1) % hvd.size(), (hvd.rank() - 1) % hvd.size()
    for shape in ((), (0,), (3, 4), (200000,)):
        received = np.zeros(shape)
        handle = hvd.send_async(np.full(shape, float(hvd.rank())), ahead, tag=3)
        assert hvd.recv(received, behind, tag=3) is received
        hvd.synchronize(handle)
        assert_same(received, np.full(shape, float(behind)))


def test_tags_and_order() -> None:
    if hvd.rank() > 1 or hvd.size() < 2:
        return
    if hvd.rank() == 0:
        handles = [hvd.send_async(np.array([number, tag]), 1, tag) for number in range(20) for tag in (1, 2)]
        for handle in handles:
            hvd.synchronize(handle)
    else:
        for tag in (2, 1):
            for number in range(20):
                assert_same(hvd.recv(np.zeros(2, dtype=np.int64), 0, tag), np.array([number, tag]))


def test_mistakes_are_refused() -> None:
    for peer in (hvd.rank(), hvd.size(), -1):
        with pytest.raises(ValueError, match="there is no other rank"):
            hvd.send(np.ones(2), peer)
    with pytest.raises(ValueError, match="root rank"):
        hvd.reduce(np.ones(2), hvd.size())
    with pytest.raises((ValueError, hvd.HorovodInternalError), match="dimension"):
        hvd.gather(np.array(1.0), 0)
    if hvd.rank() < 2 <= hvd.size():
        with pytest.raises(hvd.HorovodInternalError, match="mismatched shapes"):
            if hvd.rank() == 0:
                hvd.send(np.ones(2), 1)
            else:
                hvd.recv(np.ones(3), 0)
