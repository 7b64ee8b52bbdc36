"""The gradients of the graph operations. Horovod's rules are averages where an adjoint would be a sum:

    allreduce       the same allreduce of the output's gradient
    allgather       the average of the output's gradient, of which this rank's rows
    broadcast       the average of the output's gradient; on other ranks than the root multiplied by 0
    alltoall        the alltoall that sends every row of the gradient back; rows that were not sent have gradient 0
    reducescatter   the allgather of the output's gradient, times the number of ranks if op is Sum, times both factors

A gradient is a collective like its verb: all ranks compute it or none. `op` is what TensorFlow calls the operation
whose gradient is asked for; of it only `inputs`, `outputs` and `get_attr` are used.
"""

from __future__ import annotations

import functools
from typing import Any

import tensorflow as tf

from horovod._generic.reduce_ops import Average, Sum
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.tensorflow import mpi_ops
from horovod.tensorflow.as_written import as_written
from horovod.tensorflow.gradient_table import GRADIENTS, Gradient
from horovod.tensorflow.util import is_elastic


class _Set(ProcessSet):
    """A process set of which only the id is known."""

    def __init__(self, process_set_id: int) -> None:
        self.process_set_id = process_set_id


def _common(op: Any) -> dict[str, Any]:
    """The arguments of a verb that its gradient also uses. An eager one is named after it."""
    name = op.get_attr("tensor_name")
    name = name.decode() if isinstance(name, bytes) else name
    return {
        "name": f"gradient.{name}" if name else None,
        "process_set": _Set(op.get_attr("process_set_id")),
        "ignore_name_scope": bool(op.get_attr("ignore_name_scope")),
    }


def _reduction(op: Any) -> dict[str, Any]:
    return {
        "op": op.get_attr("reduce_op"),
        "prescale_factor": op.get_attr("prescale_factor"),
        "postscale_factor": op.get_attr("postscale_factor"),
    }


def _typed(op: Any, gradients: Any) -> list[Any]:
    """The gradients in the types of what they are gradients of: graphs may hand over others (float32 for float64)."""
    return [tf.cast(each, output.dtype) for each, output in zip(gradients, op.outputs, strict=False)]


def _allreduce(op: Any, gradient: Any) -> Any:
    return mpi_ops._allreduce(_typed(op, [gradient])[0], **_reduction(op), **_common(op))


def _grouped_allreduce(op: Any, *gradients: Any) -> Any:
    return mpi_ops._grouped_allreduce(_typed(op, gradients), **_reduction(op), **_common(op))


def _rows(tensors: Any) -> Any:
    return tf.stack([tf.shape(tensor, out_type=tf.int64)[0] for tensor in tensors])


def _gathered(op: Any, averages: Any) -> list[Any]:
    """This rank's rows of the averages of what was gathered."""
    common = _common(op)
    if common["name"]:
        common["name"] += ".rows"
    process_set: ProcessSet = common["process_set"]
    inputs = list(op.inputs)
    everyones = mpi_ops.allgather(_rows(inputs)[tf.newaxis], **common)
    # In an elastic job the graph may outlive the world in which it was made. Smaller sets end with their world.
    may_change = is_elastic() and process_set.process_set_id == global_process_set.process_set_id
    rank = mpi_ops.rank_op() if may_change else process_set.rank()
    before = tf.reduce_sum(everyones[:rank], axis=0)
    mine = []
    for i, (tensor, average) in enumerate(zip(inputs, averages, strict=True)):
        rows = average[before[i] : before[i] + tf.shape(tensor, out_type=tf.int64)[0]]
        mine.append(tf.ensure_shape(rows, tensor.shape))
    return mine


def _allgather(op: Any, gradient: Any) -> Any:
    return _gathered(op, [mpi_ops._allreduce(_typed(op, [gradient])[0], op=Average, **_common(op))])[0]


def _grouped_allgather(op: Any, *gradients: Any) -> Any:
    return _gathered(op, mpi_ops._grouped_allreduce(_typed(op, gradients), op=Average, **_common(op)))


def _broadcast(op: Any, gradient: Any) -> Any:
    average = mpi_ops._allreduce(_typed(op, [gradient])[0], op=Average, **_common(op))
    if is_elastic():
        return average * tf.cast(tf.equal(mpi_ops.rank_op(), op.get_attr("root_rank")), average.dtype)
    return average if mpi_ops.rank() == op.get_attr("root_rank") else average * 0


def _alltoall(op: Any, gradient: Any, _: Any) -> Any:
    returned, _ = mpi_ops.alltoall(_typed(op, [gradient])[0], op.outputs[1], **_common(op))
    tensor = op.inputs[0]
    unsent = tf.shape(tensor)[0] - tf.shape(returned)[0]
    padding = tf.concat([unsent[tf.newaxis], tf.shape(tensor)[1:]], axis=0)
    whole = tf.concat([returned, tf.zeros(padding, returned.dtype)], axis=0)
    return tf.ensure_shape(whole, tensor.shape), None


def _scale(op: Any, gradient: Any) -> Any:
    """The factor for the rows of a reducescatter's gradient."""
    factor = op.get_attr("prescale_factor") * op.get_attr("postscale_factor")
    if op.get_attr("reduce_op") == Sum:
        process_set = _Set(op.get_attr("process_set_id"))
        size = mpi_ops.size_op(process_set.process_set_id or 0) if is_elastic() else process_set.size()
        gradient = gradient * tf.cast(size, gradient.dtype)
    return gradient if factor == 1.0 else gradient * tf.cast(factor, gradient.dtype)


def _reducescatter(op: Any, gradient: Any) -> Any:
    scaled = _scale(op, _typed(op, [gradient])[0])
    return tf.ensure_shape(mpi_ops.allgather(scaled, **_common(op)), op.inputs[0].shape)


def _grouped_reducescatter(op: Any, *gradients: Any) -> Any:
    gathered = mpi_ops.grouped_allgather([_scale(op, each) for each in _typed(op, gradients)], **_common(op))
    return [tf.ensure_shape(each, tensor.shape) for each, tensor in zip(gathered, op.inputs, strict=True)]


_RULES: dict[str, Gradient] = {
    "HorovodAllreduce": _allreduce,
    "HorovodGroupedAllreduce": _grouped_allreduce,
    "HorovodAllgather": _allgather,
    "HorovodGroupedAllgather": _grouped_allgather,
    "HorovodBroadcast": _broadcast,
    "HorovodAlltoall": _alltoall,
    "HorovodReducescatter": _reducescatter,
    "HorovodGroupedReducescatter": _grouped_reducescatter,
}
GRADIENTS.update(_RULES)
WITHOUT_GRADIENT = (
    "HorovodBroadcastInplace",
    "HorovodBroadcastInplaceResource",
    "HorovodJoin",
    "HorovodSize",
    "HorovodProcessSetIncluded",
    "HorovodLocalSize",
    "HorovodRank",
    "HorovodLocalRank",
)


@functools.cache
def register() -> None:
    """Tell TensorFlow how to differentiate the operations."""
    for name, gradient in GRADIENTS.items():
        tf.RegisterGradient(name)(as_written(gradient))
    for name in WITHOUT_GRADIENT:
        tf.no_gradient(name)
