"""The reducing verbs as scripts call them: any tensor, also sparse ones, compressed, on a chosen device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from horovod._generic.compression import Compressor
from horovod._generic.reduce_ops import Adasum, Average, Sum
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.tensorflow import mpi_ops
from horovod.tensorflow.as_written import as_written
from horovod.tensorflow.compression import Compression
from horovod.tensorflow.util import check_num_rank_power_of_2, handle_average_backwards_compatibility, is_elastic

NONE = Compression.none


def _size(process_set: ProcessSet) -> Any:
    """The number of ranks; in an elastic job as it is when the graph runs."""
    if is_elastic():
        return mpi_ops.size_op(process_set_id=mpi_ops._registered(process_set))
    return process_set.size()


def _check_adasum(op: int, process_set: ProcessSet) -> None:
    if op != Adasum:
        return
    if process_set.process_set_id != global_process_set.process_set_id:
        raise NotImplementedError("Adasum works on the global process set only")
    check_num_rank_power_of_2(mpi_ops.size())


def _allreduce_sparse(
    slices: Any,
    op: int,
    factors: tuple[float, float],
    name: str | None,
    process_set: ProcessSet,
    ignore_name_scope: bool,
) -> Any:
    """The slices of all ranks, side by side: an index may come more than once, as in IndexedSlices anywhere."""
    if op not in (Sum, Average):
        raise NotImplementedError("tf.IndexedSlices can be reduced by Sum and Average only; pass a dense tensor")
    if factors != (1.0, 1.0):
        raise NotImplementedError("prescale_factor and postscale_factor do not work with tf.IndexedSlices")
    parts = [
        mpi_ops.allgather(part, None if name is None else f"{name}_{kind}", ignore_name_scope, process_set)
        for part, kind in ((slices.values, "values"), (slices.indices, "indices"))
    ]
    values = parts[0]
    if op == Average:
        values = values / tf.cast(_size(process_set), values.dtype)
    return tf.IndexedSlices(values, parts[1], dense_shape=slices.dense_shape)


@as_written
def allreduce(
    tensor: Any,
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = NONE,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
) -> Any:
    """Return the reduction of a tensor, variable or tf.IndexedSlices over all ranks of the set.

    Slices are gathered, so the result has the slices of all ranks.
    """
    op = handle_average_backwards_compatibility(op, average)
    _check_adasum(op, process_set)
    if isinstance(tensor, tf.IndexedSlices):
        with tf.device(device_sparse):
            factors = (prescale_factor, postscale_factor)
            return _allreduce_sparse(tensor, op, factors, name, process_set, ignore_name_scope)
    with tf.device(device_dense):
        small, context = compression.compress(tf.convert_to_tensor(tensor))
        reduced = mpi_ops._allreduce(small, name, op, prescale_factor, postscale_factor, ignore_name_scope, process_set)
        return compression.decompress(reduced, context)


def _by_type(tensors: Sequence[Any], name: str | None, run: Callable[[list[Any], str | None], list[Any]]) -> list[Any]:
    """The results of a grouped operation, of which TensorFlow has one for every type."""
    places: dict[Any, list[int]] = {}
    for place, tensor in enumerate(tensors):
        places.setdefault(tensor.dtype, []).append(place)
    results: list[Any] = [None] * len(tensors)
    for number, (dtype, members) in enumerate(places.items()):
        own = name if name is None or number == 0 else f"{name}_{dtype.name}"
        for place, result in zip(members, run([tensors[place] for place in members], own), strict=True):
            results[place] = result
    return results


@as_written
def grouped_allreduce(
    tensors: Sequence[Any],
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = NONE,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
    name: str | None = None,
) -> list[Any]:
    """Return the reductions of the tensors; the dense ones of one type are one operation: all or none is executed."""
    op = handle_average_backwards_compatibility(op, average)
    _check_adasum(op, process_set)
    if not tensors:
        return list(tensors)
    results: list[Any] = list(tensors)
    dense = [i for i, tensor in enumerate(tensors) if not isinstance(tensor, tf.IndexedSlices)]
    with tf.device(device_sparse):
        for i, tensor in enumerate(tensors):
            if isinstance(tensor, tf.IndexedSlices):
                factors = (prescale_factor, postscale_factor)
                own = None if name is None else f"{name}_{i}"
                results[i] = _allreduce_sparse(tensor, op, factors, own, process_set, ignore_name_scope)
    with tf.device(device_dense):
        small = [compression.compress(tf.convert_to_tensor(tensors[i])) for i in dense]
        reduced = _by_type(
            [tensor for tensor, _ in small],
            name,
            lambda members, own: mpi_ops._grouped_allreduce(
                members, own, op, prescale_factor, postscale_factor, ignore_name_scope, process_set
            ),
        )
        for i, tensor, (_, context) in zip(dense, reduced, small, strict=True):
            results[i] = compression.decompress(tensor, context)
    return results


@as_written
def reducescatter(
    tensor: Any,
    device_dense: str = "",
    compression: type[Compressor] = NONE,
    op: int = Average,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Any:
    """Reduce over all ranks of the set and return this rank's rows of the result.

    The first `rows % size` ranks get one row more than the others. Only Sum and Average.
    """
    with tf.device(device_dense):
        small, context = compression.compress(tf.convert_to_tensor(tensor))
        reduced = mpi_ops._reducescatter(
            small, name, op, ignore_name_scope, process_set, prescale_factor, postscale_factor
        )
        return compression.decompress(reduced, context)


@as_written
def grouped_reducescatter(
    tensors: Sequence[Any],
    device_dense: str = "",
    compression: type[Compressor] = NONE,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[Any]:
    """Return the reducescatters of the tensors; those of one type are one operation."""
    if not tensors:
        return list(tensors)
    with tf.device(device_dense):
        small = [compression.compress(tf.convert_to_tensor(tensor)) for tensor in tensors]
        reduced = _by_type(
            [tensor for tensor, _ in small],
            None,
            lambda members, own: mpi_ops._grouped_reducescatter(
                members, own, op, False, process_set, prescale_factor, postscale_factor
            ),
        )
        return [compression.decompress(tensor, context) for tensor, (_, context) in zip(reduced, small, strict=True)]
