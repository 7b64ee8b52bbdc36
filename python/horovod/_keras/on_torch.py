"""Keras 3 on PyTorch: how gradients are reduced and variables are broadcast there.

Thread rule: as PyTorch's; a Reducer belongs to one optimizer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

import horovod.torch as hvd
from horovod._generic.reduce_ops import Average, Sum, choose_reduce_op
from horovod._keras.names import GradientNames
from horovod._keras.settings import Settings
from horovod._keras.variables import native
from horovod.torch.compression import Compression

broadcast_object = hvd.broadcast_object


class Reducer:
    """Reduces the gradients of one optimizer, and holds back its steps while they are summed up locally."""

    def __init__(self, settings: Settings, name: str) -> None:
        self._settings = settings
        self._names = GradientNames(f"{name}.{settings.process_set.process_set_id or 0}")
        self.local: list[Any] = []  # variables whose gradients are not reduced
        self.helper = LocalSums(settings) if settings.backward_passes_per_step > 1 else None

    def register_local(self, variable: Any) -> None:
        """Leave the gradient of this variable out."""
        self.local.append(variable)

    def reduce(self, grads: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        """The gradients over all ranks, None where there is none: all are sent before the first is waited for."""
        results = list(grads)
        process_set = self._settings.process_set
        if not process_set.included() or process_set.size() == 1:
            return results
        local = {id(native(each)) for each in self.local}
        sent: dict[int, Any] = {}
        names = self._names.of(variables)
        for place, (grad, variable) in enumerate(zip(grads, variables, strict=True)):
            if grad is None:
                continue
            if id(native(variable)) in local:
                results[place] = grad / process_set.size() if self._settings.scale_local_gradients else grad
            else:
                sent[place] = self._send(grad, names[place])
        for place, receive in sent.items():
            results[place] = receive()
        return results

    def compute(self, grads: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        """The gradients for the next step: reduced, or as they are when it is not due yet."""
        if self.helper is None:
            return self.reduce(grads, variables)
        if not self.helper.add(grads, variables):
            return list(grads)
        return self.reduce(self.helper.take(variables), variables)

    def apply(self, step: Callable[[], Any], iterations: Any) -> Any:
        """Make the step if it is due, otherwise only count it."""
        if self.helper is None or self.helper.counter == 0:
            return step()
        return iterations.assign_add(1)

    def _send(self, grad: torch.Tensor, name: str) -> Callable[[], torch.Tensor]:
        settings = self._settings
        if grad.is_sparse:
            if not settings.sparse_as_dense:
                return hvd.sparse_allreduce_async(grad, name, settings.op, settings.process_set)
            grad = grad.to_dense()
        compressed, context = settings.compression.compress(grad.contiguous())
        factor = settings.gradient_predivide_factor
        handle = hvd.allreduce_async(
            compressed,
            name=name,
            op=settings.op,
            prescale_factor=1.0 / factor,
            postscale_factor=factor,
            process_set=settings.process_set,
        )
        return lambda: settings.compression.decompress(hvd.synchronize(handle), context)


class LocalSums:
    """Sums of the gradients of several passes."""

    def __init__(self, settings: Settings) -> None:
        self.counter = 0  # passes since the last step
        self._passes = settings.backward_passes_per_step
        self._average = settings.average_aggregated_gradients
        self._sums: dict[int, torch.Tensor] = {}  # by the identity of the variable

    def restart(self) -> None:
        """Start empty: in a new world ranks that join have no sums, and all must reduce in the same pass."""
        self.counter, self._sums = 0, {}

    def add(self, grads: Sequence[Any], variables: Sequence[Any]) -> bool:
        """Add the gradients of one pass; True when a step is due."""
        for grad, variable in zip(grads, variables, strict=True):
            if grad is None:
                continue
            if grad.is_sparse:
                raise ValueError("sparse gradients cannot be summed up: use backward_passes_per_step=1")
            key = id(native(variable))
            self._sums[key] = self._sums[key] + grad if key in self._sums else grad.clone()
        self.counter = (self.counter + 1) % self._passes
        return self.counter == 0

    def take(self, variables: Sequence[Any]) -> list[Any]:
        """The sums, or averages, of the passes; the next pass starts empty."""
        sums = [self._sums.get(id(native(each))) for each in variables]
        self._sums = {}
        if not self._average:
            return sums
        return [None if each is None else each / self._passes for each in sums]


def gradients_of(loss: Any, variables: Any, tape: Any = None, grad_loss: Any = None) -> list[tuple[Any, Any]]:
    """Pairs of gradient and variable. There is no tape in PyTorch: `loss` is a tensor or returns one."""
    loss = loss() if callable(loss) else loss
    variables = list(variables() if callable(variables) else variables)
    grads = torch.autograd.grad(loss, [native(each) for each in variables], grad_loss, allow_unused=True)
    return list(zip(grads, variables, strict=True))


def symbolic_gradients(loss: Any, params: Sequence[Any]) -> list[Any]:
    """Gradients of a tensor."""
    return [grad for grad, _ in gradients_of(loss, params)]


def all_ranks_agree(finite: Any, settings: Settings) -> Any:
    """Whether it is true on all ranks of the process set; `finite` is a boolean tensor."""
    if not settings.process_set.included():
        return finite
    votes = finite.to(torch.int32)
    agreed = hvd.allreduce(votes, op=hvd.Min, name="hvd.gradients_are_finite", process_set=settings.process_set)
    return agreed.to(torch.bool)


def broadcast_variables(variables: Iterable[Any], root_rank: int) -> None:
    """Replace the values of all variables by those of the root. Collective."""
    hvd.broadcast_parameters([(f"keras.{i}", native(each).data) for i, each in enumerate(variables)], root_rank)


def allreduce(
    value: Any,
    name: str | None = None,
    average: bool | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    op: int | None = None,
    compression: Any = Compression.none,
) -> torch.Tensor:
    """Return the average (or the sum) of a value over all ranks."""
    chosen = choose_reduce_op(op, average)
    if chosen not in (Average, Sum):
        raise ValueError("op must be hvd.Average or hvd.Sum")
    return hvd.allreduce(
        torch.as_tensor(value),
        name=name,
        op=chosen,
        compression=compression,
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
    )


def allgather(value: Any, name: str | None = None) -> torch.Tensor:
    """Return the values of all ranks, one after the other along their first dimension."""
    return hvd.allgather(torch.as_tensor(value), name)


def broadcast(value: Any, root_rank: int, name: str | None = None) -> torch.Tensor:
    """Return the value of the root on every rank."""
    return hvd.broadcast(torch.as_tensor(value), root_rank, name)


def reducescatter(value: Any, name: str | None = None, op: int = Average) -> torch.Tensor:
    """Return this rank's part of the reduced value."""
    if op not in (Average, Sum):
        raise ValueError("op must be hvd.Average or hvd.Sum")
    return hvd.reducescatter(torch.as_tensor(value), op=op, name=name)


__all__ = [
    "Compression",
    "LocalSums",
    "Reducer",
    "all_ranks_agree",
    "allgather",
    "allreduce",
    "broadcast",
    "broadcast_object",
    "broadcast_variables",
    "gradients_of",
    "reducescatter",
    "symbolic_gradients",
]
