"""The graph operations in Python, for a TensorFlow that cannot use the library with the real ones.

Same functions, same results, but slower: each runs to its end before the next one begins, in the order of the program,
so that ranks with the same program wait for the same operation. In graphs without that order (v1 sessions) operations
that do not depend on each other need a thread each. Errors in graphs are InvalidArgumentError or UnknownError.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ctypes import byref
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from horovod._native import operations
from horovod._native.abi import Code, Handle, Kind, Request
from horovod._native.library import last_error, library
from horovod.numpy.tensors import Array, NumpyTensors
from horovod.tensorflow.as_written import as_written
from horovod.tensorflow.gradient_table import GRADIENTS

_tensors = NumpyTensors()
_WAIT_SLICE = 0.2  # seconds: Python delivers signals (Ctrl-C) between calls only

_ERRORS: dict[int, Any] = {
    Code.INVALID_ARGUMENT: tf.errors.InvalidArgumentError,
    Code.PRECONDITION: tf.errors.FailedPreconditionError,
    Code.NOT_INITIALIZED: tf.errors.FailedPreconditionError,
    Code.ABORTED: tf.errors.AbortedError,
}


class _Call(NamedTuple):
    """The parameters of the verb besides tensors."""

    op: str
    kind: Kind
    names: Sequence[str]  # of each tensor
    attributes: dict[str, Any]


def _error(op: str, code: int) -> Exception:
    error: Exception = _ERRORS.get(code, tf.errors.UnknownError)(None, None, f"{op}: {last_error()}")
    return error


def _finished(op: str, requests: Sequence[Request], memory: object = None) -> int:
    """Submit, wait and return the handle of what is done. When interrupted, `memory` stays until it is done."""
    handle = Handle()
    try:
        code = library().hvd_submit((Request * len(requests))(*requests), len(requests), None, byref(handle))
        if code == Code.OK:
            code = library().hvd_wait(handle, _WAIT_SLICE)
        while code == Code.TIMED_OUT:
            code = library().hvd_wait(handle, _WAIT_SLICE)
    except BaseException:
        if handle.value:
            operations.keep(handle.value, memory)
        raise
    if code != Code.OK:
        problem = _error(op, code)
        operations.release(handle.value)
        raise problem
    return handle.value


def _execute(call: _Call, arrays: Sequence[Array]) -> list[Array]:
    attributes = call.attributes
    splits: Sequence[int] = ()
    if call.kind == Kind.ALLTOALL:
        *arrays, given = arrays
        if given.ndim != 1:
            raise tf.errors.InvalidArgumentError(None, None, f"{call.op}: the splits must have one dimension")
        splits = given.tolist()
    arrays = [np.ascontiguousarray(array).reshape(array.shape) for array in arrays]
    in_advance = call.kind in (Kind.ALLREDUCE, Kind.BROADCAST)
    outputs = [_tensors.empty_like(array) for array in arrays] if in_advance else []
    requests = [
        operations.make_request(
            call.kind,
            name,
            _tensors.view(array),
            _tensors.view(outputs[i]) if in_advance else None,
            attributes.get("reduce_op", 0),
            attributes["process_set_id"],
            attributes.get("root_rank", -1),
            attributes.get("prescale_factor", 1.0),
            attributes.get("postscale_factor", 1.0),
            splits,
        )
        for i, (array, name) in enumerate(zip(arrays, call.names, strict=True))
    ]
    handle = _finished(call.op, requests, (arrays, outputs))
    try:
        if not in_advance:
            outputs = [_tensors.adopt(operations.take_result(handle, i), array) for i, array in enumerate(arrays)]
        if call.kind == Kind.ALLTOALL:
            outputs.append(np.array(operations.received_splits(handle, 0), np.int32))
    finally:
        operations.release(handle)
    return outputs


def _call(op: str, tensors: Sequence[Any], types: Sequence[Any], work: Callable[..., list[Array]], name: str) -> Any:
    """Run `work` on the tensors, now or when the graph runs."""
    if tf.executing_eagerly():
        return [tf.constant(array, dtype) for array, dtype in zip(work(*_arrays(tensors)), types, strict=True)]
    return tf.numpy_function(_in_a_graph(work), list(tensors), list(types), stateful=True, name=name)


def _in_a_graph(work: Callable[..., list[Array]]) -> Callable[..., list[Array]]:
    """The work, with TensorFlow's errors: a ValueError of Python becomes an InvalidArgumentError again."""

    def run(*arrays: Array) -> list[Array]:
        try:
            return work(*arrays)
        except tf.errors.InvalidArgumentError as error:
            raise ValueError(error.message) from None

    return run


def _arrays(tensors: Sequence[Any]) -> list[Array]:
    return [np.asarray(tensor.numpy()) for tensor in tensors]


def _names(op: str, attributes: dict[str, Any], name: str | None, count: int) -> tuple[str, list[str]]:
    """The name of the node, and the names in the negotiation."""
    node = name or op
    if not tf.executing_eagerly():
        node = tf.compat.v1.get_default_graph().unique_name(node, mark_as_used=False)
    wire = attributes.get("tensor_name") or node
    if attributes["ignore_name_scope"]:
        wire = wire.rsplit("/", 1)[-1]
    if "variable_names" in attributes:
        return name or op, [f"{wire}_{each}" for each in attributes["variable_names"]]
    grouped = "Grouped" in op
    return name or op, [f"{wire}_{i + 1}of{count}" if grouped else wire for i in range(count)]


class _Op:
    """The attributes of an operation that its gradient needs."""

    def __init__(self, inputs: Sequence[Any], outputs: Sequence[Any], attributes: dict[str, Any]) -> None:
        self.inputs = inputs
        self.outputs = outputs
        self._attributes = attributes

    def get_attr(self, name: str) -> Any:
        return self._attributes[name]


def _verb(
    op: str, kind: Kind, tensors: Sequence[Any], name: str | None, attributes: dict[str, Any], splits: Any = None
) -> list[Any]:
    """Run a verb so that gradients flow through it."""
    attributes = {"ignore_name_scope": False, "process_set_id": 0, "tensor_name": "", **attributes}
    node, names = _names(op, attributes, name, len(tensors))
    call = _Call(op, kind, names, attributes)
    rows_stay = kind in (Kind.ALLREDUCE, Kind.BROADCAST)
    types = [tensor.dtype for tensor in tensors] + ([tf.int32] if splits is not None else [])

    def work(*arrays: Array) -> list[Array]:
        return _execute(call, arrays)

    def forward(*inputs: Any) -> Any:
        outputs = list(_call(op, inputs, types, work, node))
        for output, tensor in zip(outputs, tensors, strict=False):
            shape = tensor.shape
            output.set_shape(shape if rows_stay or shape.rank is None else [None, *shape[1:]])

        @as_written
        def backward(*gradients: Any) -> Any:
            result = GRADIENTS[op](_Op(inputs, outputs, attributes), *gradients)
            return list(result) if isinstance(result, (list, tuple)) else [result]

        return outputs, backward

    given = [*tensors] if splits is None else [*tensors, splits]
    outputs: list[Any] = tf.custom_gradient(as_written(forward))(*given)
    return outputs


def horovod_allreduce(tensor: Any, name: str | None = None, **attributes: Any) -> Any:
    return _verb("HorovodAllreduce", Kind.ALLREDUCE, [tensor], name, attributes)[0]


def horovod_grouped_allreduce(tensors: Sequence[Any], name: str | None = None, **attributes: Any) -> list[Any]:
    return _verb("HorovodGroupedAllreduce", Kind.ALLREDUCE, tensors, name, attributes)


def horovod_allgather(tensor: Any, name: str | None = None, **attributes: Any) -> Any:
    return _verb("HorovodAllgather", Kind.ALLGATHER, [tensor], name, attributes)[0]


def horovod_grouped_allgather(tensors: Sequence[Any], name: str | None = None, **attributes: Any) -> list[Any]:
    return _verb("HorovodGroupedAllgather", Kind.ALLGATHER, tensors, name, attributes)


def horovod_broadcast(tensor: Any, name: str | None = None, **attributes: Any) -> Any:
    return _verb("HorovodBroadcast", Kind.BROADCAST, [tensor], name, attributes)[0]


def horovod_broadcast_inplace(tensors: Sequence[Any], name: str | None = None, **attributes: Any) -> list[Any]:
    return _verb("HorovodBroadcastInplace", Kind.BROADCAST, tensors, name, attributes)


def horovod_broadcast_inplace_resource(tensors: Sequence[Any], name: str | None = None, **attributes: Any) -> list[Any]:
    return _verb("HorovodBroadcastInplaceResource", Kind.BROADCAST, tensors, name, attributes)


def horovod_alltoall(tensor: Any, splits: Any, name: str | None = None, **attributes: Any) -> list[Any]:
    return _verb("HorovodAlltoall", Kind.ALLTOALL, [tensor], name, attributes, splits)


def horovod_reducescatter(tensor: Any, name: str | None = None, **attributes: Any) -> Any:
    if tensor.shape.rank == 0:
        raise ValueError("HorovodReducescatter: the tensor must have at least one dimension")
    return _verb("HorovodReducescatter", Kind.REDUCESCATTER, [tensor], name, attributes)[0]


def horovod_grouped_reducescatter(tensors: Sequence[Any], name: str | None = None, **attributes: Any) -> list[Any]:
    return _verb("HorovodGroupedReducescatter", Kind.REDUCESCATTER, tensors, name, attributes)


def horovod_join() -> Any:
    def work() -> list[Array]:
        handle = _finished("HorovodJoin", [operations.make_signal(Kind.JOIN, "join.noname")])
        last = operations.result_value(handle)
        operations.release(handle)
        return [np.int32(last)]  # type: ignore[list-item]

    return _scalar("HorovodJoin", work, None)


def _scalar(op: str, work: Callable[[], list[Array]], name: str | None) -> Any:
    (answer,) = _call(op, [], [tf.int32], work, name or op)
    answer.set_shape([])
    return answer


def _question(op: str, ask: Callable[[], int], name: str | None, negative_is_error: bool = True) -> Any:
    def work() -> list[Array]:
        value = ask()
        if value < 0 and negative_is_error:
            raise _error(op, -value)
        return [np.int32(value)]  # type: ignore[list-item]

    return _scalar(op, work, name)


def horovod_size(process_set_id: int = 0, name: str | None = None) -> Any:
    return _question("HorovodSize", lambda: library().hvd_process_set_size(process_set_id), name)


def horovod_process_set_included(process_set_id: int = 0, name: str | None = None) -> Any:
    def included() -> int:
        if not library().hvd_is_initialized():
            return -1
        if library().hvd_process_set_size(process_set_id) < 0:
            return -3
        return int(library().hvd_process_set_rank(process_set_id) >= 0)

    return _question("HorovodProcessSetIncluded", included, name, negative_is_error=False)


def horovod_local_size(name: str | None = None) -> Any:
    return _question("HorovodLocalSize", lambda: library().hvd_local_size(), name)


def horovod_rank(name: str | None = None) -> Any:
    return _question("HorovodRank", lambda: library().hvd_rank(), name)


def horovod_local_rank(name: str | None = None) -> Any:
    return _question("HorovodLocalRank", lambda: library().hvd_local_rank(), name)
