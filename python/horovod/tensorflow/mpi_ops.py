"""Collective operations on tensors, eager and in graphs, one graph node each; and the basics.

Names in the negotiation are those of the graph's nodes, which have the default `Horovod<Op>_<name of the tensor>`;
eagerly the given name, or `Horovod<Op>`: TensorFlow runs what one thread does eagerly in order. `ignore_name_scope`
drops all up to the last slash. Members of a group get `_<i>of<n>`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from horovod._generic.reduce_ops import Sum
from horovod._generic.submission import id_of
from horovod._native.library import checked, library
from horovod.common import names
from horovod.common.names import *  # noqa: F403
from horovod.common.names import _basics as _basics  # scripts know it by this name
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.tensorflow import native_ops
from horovod.tensorflow.as_written import as_written
from horovod.tensorflow.gradient_table import GRADIENTS
from horovod.tensorflow.util import _executing_eagerly
from horovod.tensorflow.xla import refuse_xla


def _normalize_name(name: str) -> str:
    """Return the name with everything replaced by `_` that a graph's node may not be called."""
    return re.sub(r"[^a-zA-Z0-9_]", "_", name)


def _registered(process_set: ProcessSet) -> int:
    """The id of a registered set; ValueError otherwise, and before `init`."""
    process_set_id = id_of(process_set)
    checked(library().hvd_process_set_size(process_set_id))
    return process_set_id


def _name(op: str, name: str | None, *tensors: Any) -> dict[str, str | None]:
    """The arguments of a graph operation that say what it is called."""
    refuse_xla(op)
    if _executing_eagerly():
        return {"tensor_name": name or "", "name": name}
    if name is not None:
        name = _node_name(name)
    else:
        name = "_".join([op, *dict.fromkeys(filter(None, map(_name_in_graph, (tensors[0], tensors[-1]))))])
    return {"name": name}


def _node_name(name: str) -> str:
    """The name, with what TensorFlow does not want in that of a node replaced: users of eager mode need not care."""
    clean = re.sub(r"[^A-Za-z0-9_.\\/>-]", "_", name)
    return clean if re.match(r"[A-Za-z0-9.]", clean) else f"x{clean}"


def _name_in_graph(tensor: Any) -> str:
    """The name of a tensor of a graph, fit for a node.

    Empty for an eager one that a function uses: its name is a number that differs between ranks.
    """
    if hasattr(tensor, "numpy") or re.fullmatch(r"\d+:\d+", tensor.name):
        return ""
    return _normalize_name(tensor.name)


def _tensors(tensors: Sequence[Any]) -> list[Any]:
    return [tf.convert_to_tensor(tensor) for tensor in tensors]


@as_written
def _allreduce(
    tensor: Any,
    name: str | None = None,
    op: int = Sum,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Return the element-wise reduction of a dense tensor over all ranks of the set."""
    process_set_id = _registered(process_set)
    tensor = tf.convert_to_tensor(tensor)
    return native_ops.module().horovod_allreduce(
        tensor,
        reduce_op=op,
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
        ignore_name_scope=ignore_name_scope,
        process_set_id=process_set_id,
        **_name("HorovodAllreduce", name, tensor),
    )


@as_written
def _grouped_allreduce(
    tensors: Sequence[Any],
    name: str | None = None,
    op: int = Sum,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """Return the reductions of dense tensors of one type, which are one operation."""
    process_set_id = _registered(process_set)
    tensors = _tensors(tensors)
    if not tensors:
        return tensors
    reduced: list[Any] = native_ops.module().horovod_grouped_allreduce(
        tensors,
        reduce_op=op,
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
        ignore_name_scope=ignore_name_scope,
        process_set_id=process_set_id,
        **_name("HorovodGroupedAllreduce", name, *tensors),
    )
    return reduced


@as_written
def allgather(
    tensor: Any,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Return the tensors of all ranks of the set, concatenated along the first dimension in rank order.

    The first dimension may differ between ranks, also be 0; the others may not.
    """
    process_set_id = _registered(process_set)
    tensor = tf.convert_to_tensor(tensor)
    return native_ops.module().horovod_allgather(
        tensor,
        ignore_name_scope=ignore_name_scope,
        process_set_id=process_set_id,
        **_name("HorovodAllgather", name, tensor),
    )


@as_written
def grouped_allgather(
    tensors: Sequence[Any],
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """Return the allgathers of tensors of one type, which are one operation."""
    process_set_id = _registered(process_set)
    tensors = _tensors(tensors)
    if not tensors:
        return tensors
    gathered: list[Any] = native_ops.module().horovod_grouped_allgather(
        tensors,
        ignore_name_scope=ignore_name_scope,
        process_set_id=process_set_id,
        **_name("HorovodGroupedAllgather", name, *tensors),
    )
    return gathered


@as_written
def broadcast(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Return the tensor of `root_rank`, which is a rank of the world also in a smaller set."""
    process_set_id = _registered(process_set)
    tensor = tf.convert_to_tensor(tensor)
    return native_ops.module().horovod_broadcast(
        tensor,
        root_rank=root_rank,
        ignore_name_scope=ignore_name_scope,
        process_set_id=process_set_id,
        **_name("HorovodBroadcast", name, tensor),
    )


@as_written
def broadcast_(
    variables: Sequence[Any],
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """Replace the values of variables by those of `root_rank`, as one operation, and return the new values."""
    from horovod.tensorflow.variables import broadcast_in_place  # which uses this module

    return broadcast_in_place(variables, root_rank, name, process_set)


@as_written
def alltoall(
    tensor: Any,
    splits: Any = None,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Send `splits[r]` rows to each rank r of the set and return the received rows in rank order.

    Without splits the rows are divided evenly and only the output is returned; with splits, `(output,
    received_splits)`. Rows beyond the sum of the splits are not sent.
    """
    process_set_id = _registered(process_set)
    tensor = tf.convert_to_tensor(tensor)
    output, received = native_ops.module().horovod_alltoall(
        tensor,
        tf.constant([], dtype=tf.int32) if splits is None else tf.convert_to_tensor(splits, dtype_hint=tf.int32),
        ignore_name_scope=ignore_name_scope,
        process_set_id=process_set_id,
        **_name("HorovodAlltoall", name, tensor),
    )
    return output if splits is None else (output, received)


def _alltoall_grad(op: Any, grad_wrt_output: Any, grad_wrt_received_splits: Any = None) -> list[Any]:
    """The gradients of an alltoall with respect to the tensor and the splits, for code that calls it by this name."""
    return list(GRADIENTS["HorovodAlltoall"](op, grad_wrt_output, grad_wrt_received_splits))


@as_written
def _reducescatter(
    tensor: Any,
    name: str | None = None,
    op: int = Sum,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Any:
    """Return this rank's rows of the reduction of a tensor over all ranks of the set."""
    process_set_id = _registered(process_set)
    tensor = tf.convert_to_tensor(tensor)
    return native_ops.module().horovod_reducescatter(
        tensor,
        reduce_op=op,
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
        ignore_name_scope=ignore_name_scope,
        process_set_id=process_set_id,
        **_name("HorovodReducescatter", name, tensor),
    )


@as_written
def _grouped_reducescatter(
    tensors: Sequence[Any],
    name: str | None = None,
    op: int = Sum,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[Any]:
    """Return the reducescatters of tensors of one type, which are one operation."""
    process_set_id = _registered(process_set)
    tensors = _tensors(tensors)
    if not tensors:
        return tensors
    reduced: list[Any] = native_ops.module().horovod_grouped_reducescatter(
        tensors,
        reduce_op=op,
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
        ignore_name_scope=ignore_name_scope,
        process_set_id=process_set_id,
        **_name("HorovodGroupedReducescatter", name, *tensors),
    )
    return reduced


@as_written
def join() -> Any:
    """Report that this rank has no more data, wait until all ranks have, and return the last rank.

    Meanwhile the other ranks' allreduces take zeros for this rank; Average still divides by the full size.
    """
    refuse_xla("HorovodJoin")
    return native_ops.module().horovod_join()


@as_written
def size_op(process_set_id: int = 0, name: str | None = None) -> Any:
    """Return the number of ranks in the set when the graph runs."""
    return native_ops.module().horovod_size(process_set_id=process_set_id, name=name)


@as_written
def process_set_included_op(process_set_id: int = 0, name: str | None = None) -> Any:
    """Return, when the graph runs, 1 if this process is in the set, 0 if not, -1 before init, -3 for no such set."""
    return native_ops.module().horovod_process_set_included(process_set_id=process_set_id, name=name)


@as_written
def local_size_op(name: str | None = None) -> Any:
    """Return the number of ranks on this host when the graph runs."""
    return native_ops.module().horovod_local_size(name=name)


@as_written
def rank_op(name: str | None = None) -> Any:
    """Return this process's rank when the graph runs."""
    return native_ops.module().horovod_rank(name=name)


@as_written
def local_rank_op(name: str | None = None) -> Any:
    """Return this process's rank on its host when the graph runs."""
    return native_ops.module().horovod_local_rank(name=name)


__all__ = [
    *names.__all__,
    "allgather",
    "alltoall",
    "broadcast",
    "broadcast_",
    "grouped_allgather",
    "join",
    "local_rank_op",
    "local_size_op",
    "process_set_included_op",
    "rank_op",
    "size_op",
]
