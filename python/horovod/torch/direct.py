"""Tensors of a GPU that the engine works on where they are, with NCCL.

All ranks agree at init whether NCCL is used, and the choice depends on the tensor's type alone, so all ranks make it
alike. What NCCL has no type for, and every other device, goes through staging.py. The engine orders its work behind the
current stream of the thread that submits. `synchronize` returns when the GPU has finished, so any stream may read the
result; horovod/_generic/on_stream.py says when the current stream waits instead.

Written against PyTorch's documented interfaces; not yet run on a GPU.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
import torch.utils.dlpack

from horovod._native import dlpack, operations
from horovod._native.abi import Kind, ReduceOp
from horovod._native.operations import EngineMemory, TensorView


def accepts(tensor: torch.Tensor, code: int) -> bool:
    """Whether the engine takes this tensor as it is."""
    return tensor.is_cuda and operations.device_accepts(Kind.ALLREDUCE, code, ReduceOp.SUM)


def view(tensor: torch.Tensor, code: int) -> TensorView:
    """The tensor, valid behind what the current stream has to do so far."""
    device = tensor.get_device()
    return TensorView(tensor, tensor.data_ptr(), code, tuple(tensor.shape), device, current_stream(device))


def current_stream(device: int) -> int:
    """The stream that this thread uses on that GPU."""
    stream: int = torch.cuda.current_stream(device).cuda_stream
    return stream


_exchange = functools.cache(lambda: dlpack.exchange_api(torch.Tensor))  # 0 before PyTorch 2.10


def outputs(device: int, count: int) -> dlpack.Outputs | None:
    """Room in PyTorch's memory for outputs on that GPU, or in host memory (-1); None: PyTorch does not offer it."""
    if not _exchange():
        return None
    accelerator = dlpack.ROCM if torch.version.hip else dlpack.CUDA
    where = (dlpack.CPU, 0) if device < 0 else (accelerator, device)
    made = dlpack.Outputs(_exchange(), *where, count)
    return made if made.is_possible else None


def adopt_output(capsule: object) -> torch.Tensor:
    """The output. PyTorch took its memory for the default stream, so it is told who uses it."""
    output: torch.Tensor = torch.utils.dlpack.from_dlpack(capsule)
    if output.is_cuda:
        output.record_stream(torch.cuda.current_stream(output.device))
    return output


class _Bytes:
    """The engine's device memory as PyTorch reads it."""

    def __init__(self, memory: EngineMemory) -> None:
        self.memory = memory

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        shape, data = (self.memory.size_in_bytes,), (self.memory.address, False)
        return {"version": 3, "typestr": "|u1", "shape": shape, "data": data, "stream": None}


def adopt(memory: EngineMemory, like: torch.Tensor) -> torch.Tensor:
    """A copy of the result in PyTorch's own memory, which tracks the streams that use it; the engine's does not."""
    result = torch.empty(memory.shape, dtype=like.dtype, device=like.device)
    source = torch.as_tensor(_Bytes(memory), device=like.device)
    result.view(-1).view(torch.uint8).copy_(source)
    torch.cuda.current_stream(like.device).synchronize()  # the engine's memory is freed after this
    return result
