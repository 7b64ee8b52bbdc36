"""An allreduce in two halves, for functions that JAX traces: computation between them overlaps the exchange.

The array is copied at the start and the result at the end, because XLA may move arrays meanwhile.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from horovod._generic.handles import handles
from horovod._generic.process_sets import ProcessSet, global_process_set
from horovod._generic.reduce_ops import choose_reduce_op
from horovod._generic.submission import Reduction
from horovod.jax import compiled, differentiation, verbs
from horovod.jax.call import Call, attributes_of
from horovod.jax.trees import Flat, flatten


@functools.partial(
    jax.tree_util.register_dataclass, data_fields=["arrays", "number"], meta_fields=["call", "rebuild", "is_traced"]
)
@dataclass(frozen=True)
class Started:
    """An allreduce between its start and its end; a pytree, so it may be passed into and out of a traced function."""

    arrays: list[Any]  # what is reduced
    number: Any  # of the operation; None: it is left to `allreduce_done`, or has run at once
    call: Call
    rebuild: Any
    is_traced: bool


def allreduce_start(
    tensor: Any,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Started:
    """Start an allreduce of an array or a pytree. Each start needs one `allreduce_done`, which returns the result."""
    reduction = Reduction(choose_reduce_op(op, average), prescale_factor, postscale_factor)
    flat = flatten(tensor)
    call = verbs._allreduce_call(flat, name, reduction, process_set)
    if not flat.is_traced:
        return Started([], verbs._start(call, flat), call, flat.rebuild, False)
    number = None
    if jax.default_backend() == "cpu" and compiled.custom_calls() is not None:
        number = _start(call, *map(jax.lax.stop_gradient, flat.arrays))
    return Started(flat.arrays, number, call, flat.rebuild, True)


def allreduce_done(started: Started) -> Any:
    """Wait for an allreduce that was started, and return its result."""
    if not started.is_traced:
        return handles.synchronize(started.number)
    if started.number is None:  # callbacks are not split
        flat = Flat(started.arrays, True, started.rebuild)
        return flat.rebuild(differentiation.run(started.call, *started.arrays))
    return started.rebuild(_done(started.call, started.number, *started.arrays))


@functools.partial(jax.custom_batching.custom_vmap)
def _refuse_vmap(arrays: Any) -> Any:
    return arrays


def _no_vmap(axis_size: int, in_batched: Any, arrays: Any) -> Any:
    raise NotImplementedError(
        "hvd.allreduce_start does not work inside vmap: use hvd.allreduce, which reduces the whole batch at once"
    )


_refuse_vmap.def_vmap(_no_vmap)


def _start(call: Call, *arrays: Any) -> Any:
    number = jax.ShapeDtypeStruct((2,), jnp.uint32)
    custom_call = jax.ffi.ffi_call("hvd_jax_start", number, has_side_effect=True)
    return custom_call(*_refuse_vmap(list(arrays)), **attributes_of(call))


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _done(call: Call, number: Any, *arrays: Any) -> list[Any]:
    results = [jax.ShapeDtypeStruct(each.shape, each.dtype) for each in arrays]
    outputs: list[Any] = jax.ffi.ffi_call("hvd_jax_done", results, has_side_effect=True)(number)
    return list(outputs)


def _forward(call: Call, number: Any, *arrays: Any) -> tuple[list[Any], Any]:
    outputs, rows = _done(call, number, *arrays), [jnp.zeros((0, 0), jnp.int8) for _ in arrays]
    return outputs, rows


def _backward(call: Call, rows: Any, gradients: Any) -> tuple[Any, ...]:
    return (None, *differentiation._backward(call, rows, gradients))


_done.defvjp(_forward, _backward)
