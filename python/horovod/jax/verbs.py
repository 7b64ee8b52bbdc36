"""The collectives on arrays and on whole pytrees, inside and outside of functions that JAX traces.

Outside, results may have any size, and `*_async` gives handles. Inside `jit`, `grad`, `scan`, `cond`, `vmap` and so on
they are custom calls, one for all arrays of a pytree; all ranks need the same number of rows there.

Thread rule: any thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from horovod._generic.collectives import Collectives
from horovod._generic.compression import NoneCompressor
from horovod._generic.handles import Pending, handles
from horovod._generic.process_sets import ProcessSet, global_process_set
from horovod._generic.reduce_ops import Adasum, Average, Sum, choose_reduce_op
from horovod._generic.submission import Reduction, id_of
from horovod._native.abi import WORLD_SET, Kind
from horovod.jax import differentiation, eager
from horovod.jax.call import Call, wire_names
from horovod.jax.naming import name_for_trace
from horovod.jax.trees import Flat, flatten
from horovod.jax.world import compiled_for
from horovod.numpy.tensors import NumpyTensors

_signals = Collectives(NumpyTensors())
barrier = _signals.barrier
join = _signals.join
poll = _signals.poll
_DEPENDS_ON_WORLD = (Kind.ALLGATHER, Kind.ALLTOALL, Kind.REDUCESCATTER)


def _describe(
    kind: Kind, flat: Flat, name: str | None, process_set: ProcessSet, always_grouped: bool = False, **arguments: Any
) -> Call:
    """The call for the arrays; ValueError if it is not possible."""
    grouped = flat.is_tree or always_grouped
    verb = f"{'grouped_' if grouped else ''}{kind.name.lower()}"
    if not flat.arrays:
        raise ValueError(f"{verb} needs at least one array")
    if name is not None and not isinstance(name, str):
        raise TypeError(f"the name of an operation is a str, not {type(name).__name__}: {name!r}")
    arguments |= {"process_set": id_of(process_set)}
    if kind in _DEPENDS_ON_WORLD:
        place, ranks = process_set.rank(), process_set.size()
        assert place is not None and ranks is not None
        arguments |= {"ranks": ranks, "rank": place}
        if flat.is_traced:
            compiled_for.note()
    if flat.is_traced:
        compiled_for.note_set(process_set)
    if name is None:
        name = name_for_trace(verb, flat.arrays) if flat.is_traced else f"noname.{handles.next_number()}"
    count = len(flat.arrays)
    return Call(kind, verb, wire_names(verb, name, count, grouped), (count,), **arguments)


def _run(call: Call, flat: Flat) -> Any:
    return flat.rebuild(differentiation.run(call, *flat.arrays) if flat.is_traced else eager.run(call, flat.arrays))


class _Tree(Pending):
    """An operation whose result is a pytree."""

    __slots__ = ("_flat", "_pending")

    def __init__(self, pending: Pending, flat: Flat) -> None:
        super().__init__(pending.native, pending.memory, pending._result)
        pending.native = 0  # this object releases it
        self._flat = flat

    def take_result(self) -> Any:
        arrays, received = super().take_result()
        tree = self._flat.rebuild(arrays)
        return (tree, jnp.asarray(received, jnp.int32)) if received else tree


def _start(call: Call, flat: Flat) -> int:
    if flat.is_traced:
        raise ValueError(
            f"{call.verb}_async does not work in a function that JAX traces: use hvd.allreduce_start and "
            f"hvd.allreduce_done there, or hvd.{call.verb}"
        )
    return handles.add(handles.next_number(), _Tree(eager.submit(call, flat.arrays, False), flat))


def synchronize(handle: int) -> Any:
    """Wait for the operation and return its result; None if the handle is unknown.

    A failed operation raises HorovodInternalError, and its handle is forgotten.
    """
    return handles.synchronize(handle)


# ---- allreduce


def _allreduce_call(
    flat: Flat, name: str | None, reduction: Reduction, process_set: ProcessSet, always_grouped: bool = False
) -> Call:
    if reduction.op == Adasum and process_set.process_set_id != WORLD_SET:
        raise NotImplementedError("Adasum works on the global process set only")
    return _describe(Kind.ALLREDUCE, flat, name, process_set, always_grouped, **reduction._asdict())


def allreduce(
    tensor: Any,
    average: bool | None = None,
    name: str | None = None,
    compression: Any = NoneCompressor,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Return the element-wise reduction over all ranks of an array, or of each array of a pytree, as one operation."""
    reduction = Reduction(choose_reduce_op(op, average), prescale_factor, postscale_factor)
    return _reduce_compressed(tensor, compression, name, reduction, process_set, False)


def _reduce_compressed(
    tree: Any, compression: Any, name: str | None, reduction: Reduction, process_set: ProcessSet, always_grouped: bool
) -> Any:
    flat = flatten(tree)
    if hasattr(compression, "reduce"):
        reduced, _ = compression.reduce(flat.arrays, None, name, reduction, process_set)
        return flat.rebuild(reduced)
    compressed = [compression.compress(each) for each in flat.arrays]
    small = replace(flat, arrays=[each for each, _ in compressed])

    def rebuild(arrays: Sequence[Any]) -> Any:
        pairs = zip(arrays, compressed, strict=True)
        return flat.rebuild([compression.decompress(each, context) for each, (_, context) in pairs])

    small = replace(small, rebuild=rebuild)
    return _run(_allreduce_call(small, name, reduction, process_set, always_grouped), small)


def allreduce_async(
    tensor: Any,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start an allreduce of an array or a pytree and return its handle."""
    reduction = Reduction(choose_reduce_op(op, average), prescale_factor, postscale_factor)
    flat = flatten(tensor)
    return _start(_allreduce_call(flat, name, reduction, process_set), flat)


def grouped_allreduce(
    tensors: Sequence[Any],
    average: bool | None = None,
    name: str | None = None,
    compression: Any = NoneCompressor,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """Return the reductions of the arrays, which are one operation: all or none is executed."""
    reduction = Reduction(choose_reduce_op(op, average), prescale_factor, postscale_factor)
    result: list[Any] = _reduce_compressed(list(tensors), compression, name, reduction, process_set, True)
    return result


def grouped_allreduce_async(
    tensors: Sequence[Any],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start a grouped allreduce and return its one handle; `synchronize` gives a list."""
    reduction = Reduction(choose_reduce_op(op, average), prescale_factor, postscale_factor)
    flat = flatten(list(tensors))
    return _start(_allreduce_call(flat, name, reduction, process_set, True), flat)


def reduce_named(
    tree: Any,
    names: Sequence[str],
    groups: Sequence[int],
    reduction: Reduction,
    process_set: ProcessSet,
) -> Any:
    """Reduce the arrays of a pytree under names of their own. `groups` says how many belong together, in order."""
    flat = flatten(tree)
    if flat.is_traced:
        compiled_for.note_set(process_set)
    wire = tuple(f"allreduce.{name}" for name in names)
    call = Call(Kind.ALLREDUCE, "allreduce", wire, tuple(groups), *reduction, process_set=id_of(process_set))
    return _run(call, flat)


# ---- allgather


def allgather(tensor: Any, name: str | None = None, process_set: ProcessSet = global_process_set) -> Any:
    """Return the rows of all ranks, in rank order. Outside traced functions their numbers may differ."""
    flat = flatten(tensor)
    return _run(_describe(Kind.ALLGATHER, flat, name, process_set), flat)


def allgather_async(tensor: Any, name: str | None = None, process_set: ProcessSet = global_process_set) -> int:
    """Start an allgather and return its handle."""
    flat = flatten(tensor)
    return _start(_describe(Kind.ALLGATHER, flat, name, process_set), flat)


def grouped_allgather(
    tensors: Sequence[Any], name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """Return the gathered arrays, which are one operation."""
    flat = flatten(list(tensors))
    result: list[Any] = _run(_describe(Kind.ALLGATHER, flat, name, process_set, True), flat)
    return result


def grouped_allgather_async(
    tensors: Sequence[Any], name: str | None = None, process_set: ProcessSet = global_process_set
) -> int:
    """Start a grouped allgather and return its one handle."""
    flat = flatten(list(tensors))
    return _start(_describe(Kind.ALLGATHER, flat, name, process_set, True), flat)


# ---- broadcast


def broadcast(
    tensor: Any, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Any:
    """Return the array, or the pytree, of `root_rank`, which is a rank of the world even for a smaller set."""
    flat = flatten(tensor)
    return _run(_describe(Kind.BROADCAST, flat, name, process_set, root_rank=root_rank), flat)


def broadcast_async(
    tensor: Any, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> int:
    """Start a broadcast and return its handle."""
    flat = flatten(tensor)
    return _start(_describe(Kind.BROADCAST, flat, name, process_set, root_rank=root_rank), flat)


# ---- alltoall


def alltoall(
    tensor: Any,
    splits: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    received_splits: Any = None,
) -> Any:
    """Send rows to every rank: `splits[r]` rows to rank r, or the same number to each.

    Returns what was received, and with `splits` also the rows from each rank. In a function that JAX traces, sizes are
    compiled: `splits` then needs `received_splits`, the rows that will come from each rank.
    """
    flat = flatten(tensor)
    sent = _read_splits(splits)
    if not flat.is_traced:
        call = _describe(Kind.ALLTOALL, flat, name, process_set, splits=sent)
        tree, received = handles.finish(handles.next_number(), _Tree(eager.submit(call, flat.arrays, True), flat))
        return (tree, received) if splits is not None else tree
    expected = _read_splits(received_splits)
    if sent and not expected:
        raise ValueError(
            "alltoall with splits in a function that JAX traces needs received_splits, the rows that will come from "
            "each rank: exchange them before with hvd.alltoall(jnp.asarray(splits)) outside of it"
        )
    tree = _run(_describe(Kind.ALLTOALL, flat, name, process_set, splits=sent, received=expected), flat)
    return (tree, jnp.asarray(expected, jnp.int32)) if splits is not None else tree


def alltoall_async(
    tensor: Any, splits: Any = None, name: str | None = None, process_set: ProcessSet = global_process_set
) -> int:
    """Start an alltoall and return its handle; `synchronize` gives the output and the received splits."""
    flat = flatten(tensor)
    return _start(_describe(Kind.ALLTOALL, flat, name, process_set, splits=_read_splits(splits)), flat)


def _read_splits(splits: Any) -> tuple[int, ...]:
    if splits is None:
        return ()
    if isinstance(splits, jax.core.Tracer):
        raise ValueError("splits must be known while the function is traced: pass a list of ints, not a traced array")
    return tuple(NumpyTensors().read_splits(splits if isinstance(splits, (list, tuple)) else np.asarray(splits)))


# ---- reducescatter


def reducescatter(
    tensor: Any,
    name: str | None = None,
    compression: Any = NoneCompressor,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Any:
    """Return this rank's rows of the reduction; the first ranks get one row more if they cannot all get the same."""
    reduction = Reduction(op, prescale_factor, postscale_factor)
    return _scatter_compressed(tensor, compression, name, reduction, process_set, False)


def grouped_reducescatter(
    tensors: Sequence[Any],
    name: str | None = None,
    compression: Any = NoneCompressor,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[Any]:
    """Return this rank's rows of the reductions, which are one operation."""
    reduction = Reduction(op, prescale_factor, postscale_factor)
    result: list[Any] = _scatter_compressed(list(tensors), compression, name, reduction, process_set, True)
    return result


def _scatter_compressed(
    tree: Any, compression: Any, name: str | None, reduction: Reduction, process_set: ProcessSet, always_grouped: bool
) -> Any:
    if hasattr(compression, "reduce"):
        raise ValueError("reducescatter supports only hvd.Compression.fp16 and bf16")
    _check_scatter(reduction)
    flat = flatten(tree)
    compressed = [compression.compress(each) for each in flat.arrays]

    def rebuild(arrays: Sequence[Any]) -> Any:
        pairs = zip(arrays, compressed, strict=True)
        return flat.rebuild([compression.decompress(each, context) for each, (_, context) in pairs])

    small = replace(flat, arrays=[each for each, _ in compressed], rebuild=rebuild)
    call = _describe(Kind.REDUCESCATTER, small, name, process_set, always_grouped, **reduction._asdict())
    return _run(call, small)


def _check_scatter(reduction: Reduction) -> None:
    if reduction.op not in (Average, Sum):
        raise ValueError("reducescatter supports only op=hvd.Average and op=hvd.Sum")


def reducescatter_async(
    tensor: Any,
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """Start a reducescatter and return its handle."""
    reduction = Reduction(op, prescale_factor, postscale_factor)
    _check_scatter(reduction)
    flat = flatten(tensor)
    return _start(_describe(Kind.REDUCESCATTER, flat, name, process_set, **reduction._asdict()), flat)


def grouped_reducescatter_async(
    tensors: Sequence[Any],
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """Start a grouped reducescatter and return its one handle."""
    reduction = Reduction(op, prescale_factor, postscale_factor)
    _check_scatter(reduction)
    flat = flatten(list(tensors))
    return _start(_describe(Kind.REDUCESCATTER, flat, name, process_set, True, **reduction._asdict()), flat)


__all__ = [
    "allgather",
    "allgather_async",
    "allreduce",
    "allreduce_async",
    "alltoall",
    "alltoall_async",
    "barrier",
    "broadcast",
    "broadcast_async",
    "grouped_allgather",
    "grouped_allgather_async",
    "grouped_allreduce",
    "grouped_allreduce_async",
    "grouped_reducescatter",
    "grouped_reducescatter_async",
    "join",
    "poll",
    "reducescatter",
    "reducescatter_async",
    "synchronize",
]
