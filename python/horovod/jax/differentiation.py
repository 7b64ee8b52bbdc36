"""Gradients of the collectives: the rules of Horovod for PyTorch and TensorFlow. Reverse mode only."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from horovod._generic.reduce_ops import Average, Sum
from horovod._native.abi import Kind
from horovod.common.names import _basics
from horovod.jax import compiled
from horovod.jax.call import Call
from horovod.jax.world import compiled_for


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def run(call: Call, *arrays: Any) -> list[Any]:
    """Run the collective so that it can be differentiated."""
    return compiled.run(call, arrays)


def _forward(call: Call, *arrays: Any) -> tuple[list[Any], Any]:
    # Only the number of rows is needed later: it is kept in arrays without elements.
    rows = [jnp.zeros((each.shape[0] if each.ndim else 0, 0), jnp.int8) for each in arrays]
    return compiled.run(call, arrays), rows


def _backward(call: Call, rows: Sequence[Any], gradients: Sequence[Any]) -> tuple[Any, ...]:
    places = [i for i, each in enumerate(gradients) if each.dtype != jax.dtypes.float0]
    results: list[Any] = [None] * len(gradients)
    if not places:
        return tuple(results)
    names = tuple(f"{call.names[i]}.grad" for i in places)
    groups = (len(places),) if len(call.groups) == 1 else (1,) * len(places)
    own = replace(call, names=names, groups=groups, verb=f"the gradient of {call.verb}")
    found = _RULES[call.kind](own, [gradients[i] for i in places], [rows[i].shape[0] for i in places])
    for i, each in zip(places, found, strict=True):
        results[i] = each
    return tuple(results)


run.defvjp(_forward, _backward)


def _of_allreduce(call: Call, gradients: list[Any], _: list[int]) -> list[Any]:
    return compiled.run(call, gradients)


def _average(call: Call, gradients: list[Any]) -> list[Any]:
    return compiled.run(
        replace(call, kind=Kind.ALLREDUCE, op=Average, prescale_factor=1.0, postscale_factor=1.0), gradients
    )


def _of_broadcast(call: Call, gradients: list[Any], _: list[int]) -> list[Any]:
    averages = _average(call, gradients)
    compiled_for.note()
    # Not zeros_like: then JAX would drop the allreduce as unused, while other ranks wait in it.
    return averages if _basics.rank() == call.root_rank else [each * 0 for each in averages]


def _of_allgather(call: Call, gradients: list[Any], rows: list[int]) -> list[Any]:
    starts = [call.rank * own for own in rows]
    if any(isinstance(each, jax.core.Tracer) for each in gradients):
        if any(each.shape[0] != own * call.ranks for each, own in zip(gradients, rows, strict=True)):
            raise ValueError(f"{call.verb}: inside jit all ranks need the same number of rows")
    else:
        sizes = replace(call, kind=Kind.ALLGATHER, names=(f"{call.names[0]}.rows",), groups=(1,))
        everyones = compiled.run(sizes, [jnp.asarray([rows], jnp.int32)])[0]
        starts = [int(each) for each in everyones[: call.rank].sum(0)]
    averages = _average(call, gradients)
    return [each[start : start + own] for each, start, own in zip(averages, starts, rows, strict=True)]


def _of_alltoall(call: Call, gradients: list[Any], _: list[int]) -> list[Any]:
    return compiled.run(replace(call, splits=call.received, received=call.splits), gradients)


def _of_reducescatter(call: Call, gradients: list[Any], rows: list[int]) -> list[Any]:
    factor = call.prescale_factor * call.postscale_factor * (call.ranks if call.op == Sum else 1)
    scaled = gradients if factor == 1.0 else [each * jnp.asarray(factor, each.dtype) for each in gradients]
    gather = replace(call, kind=Kind.ALLGATHER, prescale_factor=1.0, postscale_factor=1.0, gathered=tuple(rows))
    return compiled.run(gather, scaled)


_RULES = {
    Kind.ALLREDUCE: _of_allreduce,
    Kind.BROADCAST: _of_broadcast,
    Kind.ALLGATHER: _of_allgather,
    Kind.ALLTOALL: _of_alltoall,
    Kind.REDUCESCATTER: _of_reducescatter,
}
