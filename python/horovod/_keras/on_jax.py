"""Keras 3 on JAX: how gradients are reduced and variables are broadcast there. Steps are traced, and compiled by XLA.

Thread rule: as JAX's; a Reducer belongs to one optimizer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax.numpy as jnp

import horovod.jax as hvd
from horovod._generic.reduce_ops import Average, Min, Sum, choose_reduce_op
from horovod._keras.names import GradientNames
from horovod._keras.settings import Settings
from horovod.jax.compression import Compression
from horovod.jax.gradients import GradientReduction

broadcast_object = hvd.broadcast_object


class Reducer:
    """Reduces the gradients of one optimizer, in one call."""

    helper = None  # nothing is summed up locally

    def __init__(self, settings: Settings, name: str) -> None:
        if settings.backward_passes_per_step > 1:
            raise ValueError(
                "backward_passes_per_step does not work with Keras on JAX, whose steps have no state but variables: "
                "give the optimizer gradient_accumulation_steps"
            )
        if hasattr(settings.compression, "reduce"):
            raise ValueError("Keras on JAX can compress with hvd.Compression.fp16 and bf16 only")
        self._settings = settings
        self._names = GradientNames(f"{name}.{settings.process_set.process_set_id or 0}")
        self.local: list[Any] = []  # variables whose gradients are not reduced

    def register_local(self, variable: Any) -> None:
        """Leave the gradient of this variable out."""
        self.local.append(variable)

    def reduce(self, grads: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        """The gradients over all ranks, None where there is none."""
        settings, results = self._settings, list(grads)
        process_set = settings.process_set
        reduction = GradientReduction(
            settings.compression, settings.op, settings.gradient_predivide_factor, None, process_set, ""
        )
        if not reduction.is_needed():
            return results
        local = {id(each) for each in self.local}
        names = self._names.of(variables)
        sent: dict[str, Any] = {}
        places: dict[str, int] = {}
        for place, (grad, variable) in enumerate(zip(grads, variables, strict=True)):
            if grad is None:
                continue
            if id(variable) in local:
                results[place] = grad / process_set.size() if settings.scale_local_gradients else grad
            else:
                sent[names[place]], places[names[place]] = grad, place
        for name, reduced in reduction.run(sent)[0].items():
            results[places[name]] = reduced
        return results

    compute = reduce

    def apply(self, step: Callable[[], Any], iterations: Any) -> Any:
        """Make the step."""
        return step()


def gradients_of(loss: Any, variables: Any, tape: Any = None, grad_loss: Any = None) -> list[tuple[Any, Any]]:
    """JAX has no gradients of a value that was computed before."""
    raise RuntimeError("with Keras on JAX, compute gradients with jax.grad and pass them to optimizer.apply")


def symbolic_gradients(loss: Any, params: Sequence[Any]) -> list[Any]:
    """See compute_gradients."""
    return gradients_of(loss, params)


def all_ranks_agree(finite: Any, settings: Settings) -> Any:
    """Whether it is true on all ranks of the process set; `finite` is a boolean array."""
    if not settings.process_set.included():
        return finite
    votes = jnp.asarray(finite).astype(jnp.int32)
    agreed = hvd.allreduce(votes, op=Min, name="hvd.gradients_are_finite", process_set=settings.process_set)
    return agreed.astype(jnp.bool_)


def broadcast_variables(variables: Iterable[Any], root_rank: int) -> None:
    """Replace the values of all variables by those of the root. Collective."""
    variables = list(variables)
    values = hvd.broadcast_parameters([each.value for each in variables], root_rank, name="keras")
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)


def allreduce(
    value: Any,
    name: str | None = None,
    average: bool | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    op: int | None = None,
    compression: Any = Compression.none,
) -> Any:
    """Return the average (or the sum) of a value over all ranks."""
    chosen = choose_reduce_op(op, average)
    if chosen not in (Average, Sum):
        raise ValueError("op must be hvd.Average or hvd.Sum")
    return hvd.allreduce(
        jnp.asarray(value),
        name=name,
        op=chosen,
        compression=compression,
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
    )


def allgather(value: Any, name: str | None = None) -> Any:
    """Return the values of all ranks, one after the other along their first dimension."""
    return hvd.allgather(jnp.asarray(value), name)


def broadcast(value: Any, root_rank: int, name: str | None = None) -> Any:
    """Return the value of the root on every rank."""
    return hvd.broadcast(jnp.asarray(value), root_rank, name)


def reducescatter(value: Any, name: str | None = None, op: int = Average) -> Any:
    """Return this rank's part of the reduced value."""
    return hvd.reducescatter(jnp.asarray(value), op=op, name=name)


__all__ = [
    "Compression",
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
