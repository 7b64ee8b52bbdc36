"""Allgather, broadcast, alltoall, reducescatter, sparse allreduce and objects."""

from __future__ import annotations

import pytest
import torch

import horovod.torch as hvd

TYPES = [torch.uint8, torch.int16, torch.bool, torch.int64, torch.float16, torch.bfloat16, torch.float32]


def of_rank(rank: int, shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.full(shape, rank + 1).to(dtype)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_allgather_of_different_rows(dtype: torch.dtype) -> None:
    parts = [of_rank(rank, (rank * 2, 3), dtype) for rank in range(hvd.size())]
    expected = torch.cat(parts)
    for result in (
        hvd.allgather(parts[hvd.rank()]),
        hvd.synchronize(hvd.allgather_async(parts[hvd.rank()])),
        hvd.grouped_allgather([torch.ones(1), parts[hvd.rank()]])[1],
        hvd.synchronize(hvd.grouped_allgather_async([parts[hvd.rank()]]))[0],
    ):
        assert result.dtype == dtype
        assert torch.equal(result, expected)
        result += result  # the memory is ours


def test_allgather_of_a_scalar() -> None:
    with pytest.raises(IndexError, match=r"scalar.*reshape"):
        hvd.allgather(torch.tensor(1.0), name="scalar")
    with pytest.raises(IndexError):
        hvd.grouped_allgather([torch.ones(1), torch.tensor(1.0)])
    handle = hvd.allgather_async(torch.tensor(1.0), name="scalar")
    with pytest.raises(hvd.HorovodInternalError):
        hvd.synchronize(handle)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_broadcast_from_every_root(dtype: torch.dtype) -> None:
    for root in range(hvd.size()):
        for shape in ((), (0,), (3, 2)):
            values, expected = of_rank(hvd.rank(), shape, dtype), of_rank(root, shape, dtype)
            assert torch.equal(hvd.broadcast(values, root), expected)
            assert torch.equal(hvd.synchronize(hvd.broadcast_async(values, root)), expected)
            assert torch.equal(values, of_rank(hvd.rank(), shape, dtype))
            assert hvd.broadcast_(values, root) is values
            assert torch.equal(values, expected)
    assert hvd.synchronize(hvd.broadcast_async_(values, 0)) is values
    with pytest.raises(ValueError):
        hvd.broadcast(values, hvd.size())


def test_alltoall() -> None:
    rank, size = hvd.rank(), hvd.size()
    values = torch.repeat_interleave(torch.arange(size) * 10 + rank, 2)
    expected = torch.repeat_interleave(torch.arange(size) + rank * 10, 2)
    result = hvd.alltoall(values)
    assert isinstance(result, torch.Tensor)
    assert torch.equal(result, expected)
    for splits in ([2] * size, torch.full((size,), 2, dtype=torch.int32)):
        output, received = hvd.alltoall(values, splits)
        assert torch.equal(output, expected)
        assert received.dtype == torch.int32
        assert received.tolist() == [2] * size
    output, received = hvd.synchronize(hvd.alltoall_async(values))
    assert torch.equal(output, expected) and received.tolist() == [2] * size
    uneven = torch.full((size,), float(rank))
    output, received = hvd.alltoall(uneven, [1] + [0] * (size - 1))
    assert output.tolist() == ([float(each) for each in range(size)] if rank == 0 else [])
    assert received.tolist() == [int(rank == 0)] * size


@pytest.mark.parametrize(
    "make",
    [
        lambda size: torch.ones(size),
        lambda size: torch.ones(size, dtype=torch.int64),
        lambda size: torch.full((size,), 100, dtype=torch.int32),
        lambda size: torch.ones(size, 1, dtype=torch.int32),
        lambda size: [1] * (size + 1),
    ],
)
def test_bad_splits(make: object) -> None:
    assert callable(make)
    with pytest.raises(ValueError, match="exchanged"):
        hvd.alltoall(torch.ones(hvd.size() + 1), make(hvd.size()), "exchanged")
    with pytest.raises(ValueError, match="exchanged"):
        hvd.alltoall(torch.ones(hvd.size() + 1), None, "exchanged")


@pytest.mark.parametrize("dtype", [torch.int32, torch.float16, torch.float64], ids=str)
def test_reducescatter(dtype: torch.dtype) -> None:
    rank, size = hvd.rank(), hvd.size()
    total = size * (size + 1) // 2
    for rows in (0, 1, size, 2 * size + 1):
        own = rows // size + (rank < rows % size)
        values = of_rank(rank, (rows, 2), dtype)
        expected = torch.full((own, 2), total, dtype=dtype)
        assert torch.equal(hvd.reducescatter(values, op=hvd.Sum), expected)
        assert torch.equal(hvd.synchronize(hvd.reducescatter_async(values, op=hvd.Sum)), expected)
        assert torch.equal(hvd.grouped_reducescatter([values, values], op=hvd.Sum)[1], expected)
        assert torch.equal(hvd.synchronize(hvd.grouped_reducescatter_async([values], op=hvd.Sum))[0], expected)
    scaled = hvd.reducescatter(torch.ones(size, dtype=dtype), op=hvd.Sum, prescale_factor=2.0, postscale_factor=3.0)
    assert scaled.tolist() == [6 * size]


def test_what_reducescatter_refuses() -> None:
    with pytest.raises(ValueError):
        hvd.reducescatter(torch.tensor(1.0))
    for op in (hvd.Adasum, hvd.Min, hvd.Max, hvd.Product):
        with pytest.raises(hvd.HorovodInternalError):
            hvd.reducescatter(torch.ones(4), op=op)


@pytest.mark.parametrize("op", [hvd.Average, hvd.Sum])
def test_sparse_allreduce(op: int) -> None:
    rank, size = hvd.rank(), hvd.size()
    indices = torch.tensor([[rank, size, size], [0, 1, 1]])
    given = torch.sparse_coo_tensor(indices, torch.tensor([1.0, 2.0, 3.0]), (size + 1, 2))
    result = hvd.sparse_allreduce_async(given, name="embedding", op=op)()
    assert result.is_sparse and not result.is_coalesced()
    assert result.shape == given.shape
    assert result._nnz() == 3 * size
    expected = torch.zeros(size + 1, 2)
    expected[:size, 0] = 1.0
    expected[size, 1] = 5.0 * size
    assert torch.allclose(result.to_dense(), expected / (size if op == hvd.Average else 1))


def test_sparse_allreduce_of_rows_and_of_nothing() -> None:
    rows = 0 if hvd.rank() == 0 else 2
    given = torch.sparse_coo_tensor(torch.ones(1, rows, dtype=torch.int64), torch.ones(rows, 3), (4, 3))
    result = hvd.sparse_allreduce_async(given, None, hvd.Sum)()
    assert result.to_dense()[1].tolist() == [2.0 * (hvd.size() - 1)] * 3
    for op, tensor in ((hvd.Sum, torch.ones(3)), (hvd.Max, given)):
        with pytest.raises(ValueError, match="sparse_allreduce_async of x"):
            hvd.sparse_allreduce_async(tensor, "x", op)


def test_objects() -> None:
    sent = {"rank": hvd.rank(), "tensor": torch.full((2,), hvd.rank())}
    for root in range(hvd.size()):
        received = hvd.broadcast_object(sent, root)
        assert received["rank"] == root and torch.equal(received["tensor"], torch.full((2,), root))
    assert hvd.allgather_object("x" * hvd.rank()) == ["x" * rank for rank in range(hvd.size())]
