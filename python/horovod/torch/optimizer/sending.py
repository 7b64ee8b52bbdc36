"""How one gradient is sent that is not simply a dense tensor in host memory: missing, sparse, compressed, with gaps,
on another device.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from horovod._generic.compression import NoneCompressor
from horovod._generic.handles import handles
from horovod.common.process_sets import ProcessSet
from horovod.torch import mpi_ops
from horovod.torch.optimizer.slots import Slot


@dataclass(frozen=True)
class Wire:
    """The settings for all gradients of an optimizer."""

    op: int
    prescale_factor: float
    postscale_factor: float
    compression: Any  # a class or an instance; see horovod.torch.compression
    sparse_as_dense: bool
    process_set: ProcessSet

    @property
    def is_plain(self) -> bool:
        """Whether gradients are sent unchanged."""
        return self.compression is NoneCompressor or isinstance(self.compression, NoneCompressor)


def prepare(slot: Slot, wire: Wire, grouped: bool) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return the gradient and the tensor in host memory that is to be reduced in place for it.

    None instead of the latter: its reduction is under way by other means. `slot.finish` is set to what remains to be
    done at the end, if anything does.
    """
    slot.finish = None
    grad = slot.parameter.grad
    if grad is None:
        grad = slot.parameter.grad = _zeros(slot)
    dense = grad
    if grad.layout != torch.strided:
        slot.sparse = True
        if not (wire.sparse_as_dense or grouped):
            wait = mpi_ops.sparse_allreduce_async(grad, slot.name, wire.op, wire.process_set)
            slot.finish = lambda: _store(grad, wait())
            return grad, None
        dense = grad.to_dense()
    start = getattr(wire.compression, "reduce_async", None)
    if start is not None:
        wait = start(dense, slot.name, wire.op, wire.process_set, wire.prescale_factor, wire.postscale_factor)
        slot.finish = lambda: _store(grad, wait())
        return grad, None
    small, context = wire.compression.compress(dense)
    small = small.contiguous()
    if small is not grad:
        slot.finish = lambda: _store(grad, wire.compression.decompress(small, context))
    if small.device.type == "cpu":
        return grad, small
    handle = mpi_ops.allreduce_async_(
        small, None, slot.name, wire.op, wire.prescale_factor, wire.postscale_factor, wire.process_set
    )
    slot.finish = _after(handle, slot.finish)
    return grad, None


def _after(handle: int, then: Callable[[], None] | None) -> Callable[[], None]:
    def finish() -> None:
        handles.synchronize(handle, of_gradient=True)
        if then is not None:
            then()

    return finish


def _zeros(slot: Slot) -> torch.Tensor:
    """The gradient of a parameter that was not used; other ranks may have used it."""
    parameter = slot.parameter
    if not slot.sparse:
        return torch.zeros_like(parameter, requires_grad=False)
    return torch.sparse_coo_tensor(
        torch.zeros((1, 0), dtype=torch.int64),
        torch.zeros((0, *parameter.shape[1:]), dtype=parameter.dtype),
        parameter.shape,
        device=parameter.device,
        check_invariants=False,
    )


def _store(grad: torch.Tensor, result: torch.Tensor) -> None:
    """Write the result into the gradient that the user sees, which stays the same object."""
    if grad.layout != torch.strided and result.layout == torch.strided:
        result = result.to_sparse(grad.sparse_dim())
    if result is not grad:
        grad.copy_(result)
