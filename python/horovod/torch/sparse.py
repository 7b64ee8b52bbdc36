"""Allreduce of sparse tensors: every rank gets the elements of all ranks."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from horovod._generic.handles import handles
from horovod._generic.reduce_ops import Average, Sum
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.torch.gradients import TorchCollectives


def sparse_allreduce_async(
    collectives: TorchCollectives,
    tensor: Tensor,
    name: str | None,
    op: int,
    process_set: ProcessSet = global_process_set,
) -> Callable[[], Tensor]:
    """See the function of this name in mpi_ops."""
    if not isinstance(tensor, Tensor) or tensor.layout != torch.sparse_coo:
        what = tensor.layout if isinstance(tensor, Tensor) else type(tensor).__name__
        raise ValueError(f"sparse_allreduce_async of {name}: expected a sparse COO tensor, not {what}")
    if op not in (Average, Sum):
        raise ValueError(f"sparse_allreduce_async of {name}: sparse tensors can be reduced with Average and Sum only")
    # Not indices() and values(): they are for coalesced tensors, and gradients of embeddings are not.
    indices = tensor._indices().t().contiguous()
    values = tensor._values().contiguous()
    waiting = [
        collectives.allgather_async(part, None if name is None else f"{name}.{suffix}", process_set)
        for part, suffix in ((indices, "indices"), (values, "values"))
    ]

    def synchronize() -> Tensor:
        all_values = handles.synchronize(waiting.pop())
        all_indices = handles.synchronize(waiting.pop())
        if op == Average:
            rounding = None if all_values.is_floating_point() or all_values.is_complex() else "trunc"
            all_values = torch.div(all_values, process_set.size() or 1, rounding_mode=rounding)
        return torch.sparse_coo_tensor(all_indices.t(), all_values, tensor.size(), check_invariants=False)

    return synchronize
