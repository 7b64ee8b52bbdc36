"""Optimizers of optax that reduce gradients over all ranks before they apply them."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from horovod._generic.compression import NoneCompressor
from horovod._generic.process_sets import ProcessSet, global_process_set
from horovod._generic.reduce_ops import Adasum, Average
from horovod.jax.gradients import GradientReduction, Groups


class DistributedState(NamedTuple):
    """The state of a DistributedOptimizer. The errors kept by compression belong to this rank."""

    inner: Any  # of the wrapped optimizer
    passes: Any  # since the last step; () if every pass is a step
    sums: Any  # of the gradients of those passes; () likewise
    memory: Any  # of compression


def DistributedOptimizer(  # noqa: N802
    optimizer: optax.GradientTransformation,
    compression: Any = NoneCompressor,
    backward_passes_per_step: int = 1,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    groups: Groups = None,
    average_aggregated_gradients: bool = False,
    process_set: ProcessSet = global_process_set,
    name: str = "DistributedOptimizer",
) -> optax.GradientTransformationExtraArgs:
    """Return an optimizer of optax that reduces gradients over all ranks and then applies the given optimizer.

    With `backward_passes_per_step` gradients are accumulated locally (or averaged: `average_aggregated_gradients`), and
    all updates but the last are zero. With `op=hvd.Adasum` the updates are combined, not the gradients. `groups` is a
    number, or lists of leaves' names such as "['dense']['kernel']". For use inside `jit` or not.
    """
    if backward_passes_per_step <= 0:
        raise ValueError(f"backward_passes_per_step must be 1 or more, not {backward_passes_per_step}")
    wrapped = optax.with_extra_args_support(optimizer)
    reduction = GradientReduction(compression, op, gradient_predivide_factor, groups, process_set, name)
    if op == Adasum and hasattr(compression, "reduce"):
        raise ValueError(f"{type(compression).__name__} supports only op=hvd.Average and op=hvd.Sum")

    def init(params: Any) -> DistributedState:
        memory = reduction.init(params)
        if backward_passes_per_step == 1:
            return DistributedState(wrapped.init(params), (), (), memory)
        sums = jax.tree.map(jnp.zeros_like, params)
        return DistributedState(wrapped.init(params), jnp.zeros((), jnp.int32), sums, memory)

    def step(gradients: Any, inner: Any, memory: Any, params: Any, extra: dict[str, Any]) -> tuple[Any, Any, Any]:
        if op != Adasum:
            gradients, memory = reduction.run(gradients, memory)
        updates, inner = wrapped.update(gradients, inner, params, **extra)
        if op == Adasum:
            updates, memory = reduction.run(updates, memory)
        return updates, inner, memory

    def update(
        gradients: Any, state: DistributedState, params: Any = None, **extra: Any
    ) -> tuple[Any, DistributedState]:
        if backward_passes_per_step == 1:
            updates, inner, memory = step(gradients, state.inner, state.memory, params, extra)
            return updates, DistributedState(inner, (), (), memory)
        sums = jax.tree.map(jnp.add, state.sums, gradients)
        passes = state.passes + 1

        def due(_: Any) -> tuple[Any, DistributedState]:
            divisor = backward_passes_per_step if average_aggregated_gradients else 1
            total = sums if divisor == 1 else jax.tree.map(lambda each: each / divisor, sums)
            updates, inner, memory = step(total, state.inner, state.memory, params, extra)
            empty = jax.tree.map(jnp.zeros_like, sums)
            return updates, DistributedState(inner, jnp.zeros_like(passes), empty, memory)

        def not_due(_: Any) -> tuple[Any, DistributedState]:
            # The types of the updates, which may differ from those of the gradients: both branches of `cond` need the
            # same.
            like = jax.eval_shape(due, None)[0]
            nothing = jax.tree.map(lambda each: jnp.zeros(each.shape, each.dtype), like)
            return nothing, DistributedState(state.inner, passes, sums, state.memory)

        if not isinstance(passes, jax.core.Tracer):
            return due(None) if int(passes) >= backward_passes_per_step else not_due(None)
        result: tuple[Any, DistributedState] = jax.lax.cond(passes >= backward_passes_per_step, due, not_due, None)
        return result

    return optax.GradientTransformationExtraArgs(init, update)


__all__ = ["DistributedOptimizer", "DistributedState"]
