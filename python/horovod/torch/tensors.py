"""PyTorch tensors as Horovod sees them: in host memory directly, on a GPU directly (direct.py) or by staging.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from horovod._generic.tensors import Tensors
from horovod._native.abi import DType
from horovod._native.dlpack import Outputs
from horovod._native.operations import EngineMemory, TensorView
from horovod.torch import direct, staging

# uint16 came with PyTorch 2.3.
_DTYPES: dict[torch.dtype, int] = {
    getattr(torch, code.name.lower()): code for code in DType if hasattr(torch, code.name.lower())
}
_COMPLEX = (torch.complex64, torch.complex128)


class TorchTensors(Tensors[torch.Tensor]):
    """Dense tensors. `stage_all` stages also what is in host memory, and `owns_outputs` puts outputs of unknown size
    into PyTorch's memory there too, which is of use to tests only.
    """

    def __init__(self, stage_all: bool = False, owns_outputs: bool = False) -> None:
        self._stage_all = stage_all
        self._owns_outputs = owns_outputs

    def view(self, tensor: torch.Tensor) -> TensorView:
        code = _code_of(tensor)
        if not tensor.is_cpu or self._stage_all:
            return direct.view(tensor, code) if direct.accepts(tensor, code) else staging.send(tensor, code)
        return TensorView(tensor, tensor.data_ptr(), code, tuple(tensor.shape))

    view_to_write = view

    def empty_like(self, tensor: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(tensor, memory_format=torch.contiguous_format, requires_grad=False)

    def view_result(self, output: torch.Tensor, source: TensorView) -> TensorView:
        if isinstance(source, staging.StagedView):
            return staging.expect(output, source)
        if source.device >= 0:
            return direct.view(output, source.dtype)
        return TensorView(output, output.data_ptr(), source.dtype, source.shape)

    def current_stream(self, view: TensorView) -> int:
        return direct.current_stream(view.device)

    def outputs_for(self, sources: Sequence[TensorView]) -> Outputs | None:
        first = sources[0]
        return direct.outputs(first.device, len(sources)) if first.device >= 0 or self._owns_outputs else None

    def adopt_output(self, capsule: object, like: torch.Tensor) -> torch.Tensor:
        return direct.adopt_output(capsule)

    def adopt(self, memory: EngineMemory, like: torch.Tensor) -> torch.Tensor:
        if memory.size_in_bytes == 0:
            return torch.empty(memory.shape, dtype=like.dtype, device=like.device)
        if memory.device >= 0:
            return direct.adopt(memory, like)
        host = torch.from_numpy(np.asarray(memory)).view(like.dtype).reshape(memory.shape)
        return host if like.is_cpu else host.to(like.device)

    def read_splits(self, splits: Any) -> Sequence[int]:
        is_list = isinstance(splits, list | tuple)
        tensor = torch.as_tensor(splits)
        if tensor.numel() == 0:
            return ()
        is_integer = tensor.dtype == torch.int32 or (is_list and tensor.dtype == torch.int64)
        if tensor.ndim != 1 or not is_integer:
            raise ValueError(
                f"splits must be a list of ints or a 1-D tensor of int32, not {tensor.ndim}-D {tensor.dtype}"
            )
        values: list[int] = tensor.tolist()
        return values

    def make_splits(self, received: Sequence[int], like: Any) -> torch.Tensor:
        device = like.device if isinstance(like, torch.Tensor) else None
        return torch.tensor(received, dtype=torch.int32, device=device)


def _code_of(tensor: torch.Tensor) -> int:
    """The type's number in the C ABI; ValueError for what the engine cannot read as a block of elements."""
    if not isinstance(tensor, torch.Tensor):
        raise ValueError(f"expected a torch.Tensor, not {type(tensor).__name__}")
    if tensor.layout != torch.strided:
        raise ValueError(
            f"the tensor is not dense ({tensor.layout}); use hvd.sparse_allreduce_async, or pass tensor.to_dense()"
        )
    code = _DTYPES.get(tensor.dtype)
    if code is None:
        raise ValueError(f"tensors of type {tensor.dtype} are not supported; convert it with tensor.to(...)")
    if not tensor.is_contiguous():
        raise ValueError("the tensor is not contiguous; pass tensor.contiguous()")
    if tensor.dtype in _COMPLEX and tensor.is_conj():
        raise ValueError("the tensor is a lazy conjugate; pass tensor.resolve_conj()")
    return code
