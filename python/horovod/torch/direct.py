"""Tensors of a GPU that the engine works on where they are, with NCCL.

All ranks agree at init whether NCCL is used, and the choice depends on the tensor's type alone, so all ranks make it
alike. What NCCL has no type for, and every other device, goes through staging.py. The engine orders its work behind the
current stream of the thread that submits; `synchronize` returns when the GPU has finished, so any stream may read the
result.

Written against PyTorch's documented interfaces; not yet run on a GPU.
"""

from __future__ import annotations

from typing import Any

import torch

from horovod._native import operations
from horovod._native.abi import Kind, ReduceOp
from horovod._native.operations import EngineMemory, TensorView


def accepts(tensor: torch.Tensor, code: int) -> bool:
    """Whether the engine takes this tensor as it is."""
    return tensor.is_cuda and operations.device_accepts(Kind.ALLREDUCE, code, ReduceOp.SUM)


def view(tensor: torch.Tensor, code: int) -> TensorView:
    """The tensor, valid behind what the current stream has to do so far."""
    stream: int = torch.cuda.current_stream(tensor.device).cuda_stream
    return TensorView(tensor, tensor.data_ptr(), code, tuple(tensor.shape), tensor.get_device(), stream)


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
