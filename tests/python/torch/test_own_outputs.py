"""Outputs of unknown size in PyTorch's own memory, which is what GPU tensors get; here with tensors in host memory."""

import gc

import pytest
import torch

import horovod.torch as hvd
from horovod._generic.submission import framework_outputs
from horovod._native import dlpack
from horovod.torch.gradients import TorchCollectives
from horovod.torch.tensors import TorchTensors

pytestmark = pytest.mark.skipif(
    not dlpack.exchange_api(torch.Tensor), reason="this PyTorch has no DLPack exchange API (2.10 has it)"
)

own = TorchCollectives(TorchTensors(owns_outputs=True))
DTYPES = [
    torch.uint8,
    torch.int16,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float64,
    torch.bool,
    torch.complex64,
]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rows_are_gathered_into_it(dtype):
    rank, size = hvd.rank(), hvd.size()
    result = own.allgather(torch.full((rank + 1, 3), rank % 2, dtype=dtype), name=f"own.{dtype}")
    expected = torch.cat([torch.full((r + 1, 3), r % 2, dtype=dtype) for r in range(size)])
    assert result.dtype is dtype
    assert torch.equal(result, expected)
    assert not result.zero_().any()


def test_a_group_may_have_empty_outputs():
    rank, size = hvd.rank(), hvd.size()
    tensors = [torch.empty(0, 2), torch.full((2, 1), float(rank)), torch.empty(0, 4)]
    results = own.grouped_allgather(tensors, name="own.group")
    assert [list(each.shape) for each in results] == [[0, 2], [2 * size, 1], [0, 4]]
    assert results[1].flatten().tolist() == [float(r) for r in range(size) for _ in range(2)]


def test_alltoall_and_reducescatter():
    rank, size = hvd.rank(), hvd.size()
    sent = torch.arange(size, dtype=torch.float32) + 10 * rank
    received, splits = own.alltoall(sent, splits=[1] * size, name="own.alltoall")
    assert received.tolist() == [10.0 * r + rank for r in range(size)]
    assert splits.tolist() == [1] * size
    share = own.reducescatter(torch.ones(2 * size, 2), op=hvd.Sum, name="own.reducescatter")
    assert share.tolist() == [[float(size)] * 2] * 2


def test_memory_of_a_result_that_nobody_takes_is_freed():
    handle = own.allgather_async(torch.ones(4), name="own.forgotten")
    own.synchronize(handle)
    del handle
    gc.collect()
    assert own.allgather(torch.ones(1), name="own.next").numel() == hvd.size()
    assert not framework_outputs
