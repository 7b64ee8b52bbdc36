"""The collective operations on arrays of MXNet.

They return at once, unless the size of the result is unknown: MXNet's engine runs an operation when its input
is ready, in the order of `priority` (higher first) among ready ones, and reading the result waits. A
failure is raised there, as CollectiveError: both an MXNetError and a HorovodInternalError.

The verbs are not recorded by autograd: gradients do not flow through them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import mxnet as mx
from mxnet.ndarray import NDArray

from horovod._generic.collectives import Collectives
from horovod._generic.handles import Pending, handles
from horovod._generic.process_sets import ProcessSet, global_process_set
from horovod._generic.reduce_ops import Adasum, Average, Sum, choose_reduce_op
from horovod._generic.submission import Reduction
from horovod._native.abi import Request
from horovod._native.operations import TensorView
from horovod.common import names
from horovod.common.names import *  # noqa: F403
from horovod.mxnet import native
from horovod.mxnet.arrays import MxnetTensors, back, check, host_copy, is_on_host, write


class _Pushing(Collectives[NDArray]):
    """The generic verbs, through MXNet's engine. One object for each priority."""

    def __init__(self, priority: int) -> None:
        super().__init__(MxnetTensors())
        self._priority = priority

    def _full_name(self, verb: str, name: str) -> str:
        return f"horovod_{verb.removeprefix('grouped_')}.{name}"

    def _member_names(self, full_name: str, count: int) -> list[str]:
        return super()._member_names(full_name, count) if count > 1 else [full_name]

    def _start(
        self,
        requests: Sequence[Request],
        wait_follows: bool,
        sources: Sequence[TensorView],
        targets: Sequence[TensorView] | None,
        result: Callable[[int], Any],
    ) -> Pending:
        return native.push(requests, self._priority, result)


@functools.lru_cache(maxsize=4096)
def _with(priority: int) -> _Pushing:
    return _Pushing(priority)


# ---- allreduce


def _reduction(average: bool | None, op: int | None, prescale_factor: float, postscale_factor: float) -> Reduction:
    chosen = choose_reduce_op(op, average)
    assert chosen != Adasum, "Adasum is not supported with MXNet"
    return Reduction(chosen, prescale_factor, postscale_factor)


def reduce_in_place(
    tensors: Sequence[NDArray],
    reduction: Reduction,
    name: str | None,
    priority: int,
    process_set: ProcessSet,
    grouped: bool = False,
) -> Pending:
    """Push an allreduce of arrays in host memory that do not overlap, and have MXNet's own layout."""
    return _with(priority)._allreduce(tensors, True, reduction, name, process_set, False, grouped)[1]


def allreduce(
    tensor: NDArray,
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    op: int | None = None,
) -> NDArray:
    """Return the element-wise reduction of the array over all ranks of the set; the input is not changed."""
    reduction = _reduction(average, op, prescale_factor, postscale_factor)
    output = host_copy(tensor)
    reduce_in_place([output], reduction, name, priority, process_set)
    return back(output, tensor)


def allreduce_(
    tensor: NDArray,
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    op: int | None = None,
) -> NDArray:
    """Replace the array by its reduction over all ranks of the set, and return it."""
    reduction = _reduction(average, op, prescale_factor, postscale_factor)
    check(tensor)
    host = tensor if is_on_host(tensor) else host_copy(tensor)
    reduce_in_place([host], reduction, name, priority, process_set)
    if host is not tensor:
        write(host, tensor)
    return tensor


def grouped_allreduce(
    tensors: Sequence[NDArray],
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    op: int | None = None,
) -> list[NDArray]:
    """Return the reductions of the arrays, which are one operation: all or none is executed."""
    if not tensors:
        return tensors  # unchanged, whatever it is
    reduction = _reduction(average, op, prescale_factor, postscale_factor)
    outputs = [host_copy(tensor) for tensor in tensors]
    reduce_in_place(outputs, reduction, name, priority, process_set, grouped=True)
    return list(map(back, outputs, tensors))


def grouped_allreduce_(
    tensors: Sequence[NDArray],
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    op: int | None = None,
) -> Sequence[NDArray]:
    """Replace the arrays, which may be parts of one, by their reductions, and return them."""
    outputs = grouped_allreduce(
        tensors, average, name, priority, prescale_factor, postscale_factor, process_set=process_set, op=op
    )
    for output, tensor in zip(outputs, tensors, strict=True):
        write(output, tensor)
    return tensors


# ---- broadcast


def broadcast(
    tensor: NDArray,
    root_rank: int,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> NDArray:
    """Return the array of `root_rank`, which is a rank of the world even for a smaller set."""
    output = host_copy(tensor)
    _with(priority)._broadcast(output, True, root_rank, name, process_set, False)
    return back(output, tensor)


def broadcast_(
    tensor: NDArray,
    root_rank: int,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> NDArray:
    """Replace the array by that of `root_rank`, and return it."""
    # Does not use its memory: a network that was used for prediction keeps its weights in a oneDNN layout.
    write(broadcast(tensor, root_rank, name, priority, process_set), tensor)
    return tensor


# ---- results of unknown size: these wait


def _inputs(tensors: Sequence[NDArray]) -> list[NDArray]:
    assert all(isinstance(tensor, NDArray) for tensor in tensors), "expected arrays of MXNet (mx.nd.NDArray)"
    return [host_copy(tensor) for tensor in tensors]


def allgather(
    tensor: NDArray, name: str | None = None, priority: int = 0, process_set: ProcessSet = global_process_set
) -> NDArray:
    """Return the arrays of all ranks of the set, concatenated along the first dimension in rank order. Waits.

    The first dimension may differ between ranks and may be 0; the others may not differ.
    """
    result = handles.finish(*_with(priority)._allgather(_inputs([tensor]), name, process_set, False, False))
    return back(result, tensor)


def grouped_allgather(
    tensors: Sequence[NDArray], name: str | None = None, priority: int = 0, process_set: ProcessSet = global_process_set
) -> list[NDArray]:
    """Return the allgathers of the arrays, which are one operation. Waits."""
    results = handles.finish(*_with(priority)._allgather(_inputs(tensors), name, process_set, False, True))
    return list(map(back, results, tensors))


def alltoall(
    tensor: NDArray,
    splits: Any = None,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> NDArray | tuple[NDArray, NDArray]:
    """Send `splits[r]` rows to each rank r of the set and return the received rows in rank order. Waits.

    Without splits the rows are divided evenly and only the output is returned; with splits, `(output,
    received_splits)`. Rows beyond the sum of the splits are not sent.
    """
    (source,) = _inputs([tensor])
    result, received = handles.finish(*_with(priority)._alltoall(source, splits, name, process_set, False))
    output = back(result, tensor)
    return output if splits is None else (output, received)


def _scattered(tensors: Sequence[NDArray], op: int, prescale_factor: float, postscale_factor: float) -> Reduction:
    assert op in (Average, Sum), "reducescatter supports only Average and Sum"
    if any(isinstance(tensor, NDArray) and tensor.shape == () for tensor in tensors):
        raise ValueError("reducescatter needs arrays with at least one dimension")
    return Reduction(op, prescale_factor, postscale_factor)


def reducescatter(
    tensor: NDArray,
    op: int = Average,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> NDArray:
    """Reduce over all ranks of the set and return this rank's rows of the result. Waits.

    The first `rows % size` ranks get one row more than the others. Only Sum and Average.
    """
    reduction = _scattered([tensor], op, prescale_factor, postscale_factor)
    pushing = _with(priority)
    result = handles.finish(*pushing._reducescatter(_inputs([tensor]), reduction, name, process_set, False, False))
    return back(result, tensor)


def grouped_reducescatter(
    tensors: Sequence[NDArray],
    op: int = Average,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[NDArray]:
    """Return the reducescatters of the arrays, which are one operation. Waits."""
    reduction = _scattered(tensors, op, prescale_factor, postscale_factor)
    pushing = _with(priority)
    results = handles.finish(*pushing._reducescatter(_inputs(tensors), reduction, name, process_set, False, True))
    return list(map(back, results, tensors))


# ---- handles, for explicit waiting


def _add(operation: tuple[int, Pending]) -> int:
    return handles.add(*operation)


def allreduce_async(
    tensor: NDArray,
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    op: int | None = None,
) -> int:
    """Start an allreduce and return its handle, for `poll` and `synchronize`. The result is in host memory."""
    reduction = _reduction(average, op, prescale_factor, postscale_factor)
    return _add(_with(priority)._allreduce([host_copy(tensor)], True, reduction, name, process_set, False, False))


def grouped_allreduce_async(
    tensors: Sequence[NDArray],
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    op: int | None = None,
) -> int:
    """Start a grouped allreduce and return its one handle; `synchronize` gives a tuple."""
    reduction = _reduction(average, op, prescale_factor, postscale_factor)
    return _add(_with(priority)._allreduce(_inputs(tensors), True, reduction, name, process_set, False, True))


def allgather_async(
    tensor: NDArray, name: str | None = None, priority: int = 0, process_set: ProcessSet = global_process_set
) -> int:
    """Start an allgather and return its handle."""
    return _add(_with(priority)._allgather(_inputs([tensor]), name, process_set, False, False))


def broadcast_async(
    tensor: NDArray,
    root_rank: int,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start a broadcast and return its handle."""
    return _add(_with(priority)._broadcast(host_copy(tensor), True, root_rank, name, process_set, False))


def alltoall_async(
    tensor: NDArray,
    splits: Any = None,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start an alltoall and return its handle; `synchronize` always gives `(output, received_splits)`."""
    (source,) = _inputs([tensor])
    return _add(_with(priority)._alltoall(source, splits, name, process_set, False))


def reducescatter_async(
    tensor: NDArray,
    op: int = Average,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """Start a reducescatter and return its handle."""
    reduction = _scattered([tensor], op, prescale_factor, postscale_factor)
    return _add(_with(priority)._reducescatter(_inputs([tensor]), reduction, name, process_set, False, False))


_by_handle = _Pushing(0)
poll = _by_handle.poll
synchronize = _by_handle.synchronize


# ---- without arrays


def join() -> int:
    """Report that this rank has no more data, wait until all ranks have, and return the last rank.

    Earlier operations are finished first. Meanwhile the other ranks' allreduces use zeros for this rank; Average
    still divides by the full size.
    """
    mx.nd.waitall()
    return _with(0).join()


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Wait until all ranks of the set have called this. Earlier operations may not be finished: see mx.nd.waitall."""
    _with(0).barrier(process_set)


__all__ = [
    *names.__all__,
    "allgather",
    "allgather_async",
    "allreduce",
    "allreduce_",
    "allreduce_async",
    "alltoall",
    "alltoall_async",
    "barrier",
    "broadcast",
    "broadcast_",
    "broadcast_async",
    "grouped_allgather",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_allreduce_async",
    "grouped_reducescatter",
    "join",
    "poll",
    "reducescatter",
    "reducescatter_async",
    "synchronize",
]
