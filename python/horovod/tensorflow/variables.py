"""Broadcasting variables: the values are sent in groups, and assigned on arrival.

TensorFlow's C API cannot write into a variable, so that what is called in place is a read, a broadcast and an
assignment.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.tensorflow import native_ops
from horovod.tensorflow.as_written import as_written
from horovod.tensorflow.mpi_ops import _name, _normalize_name, _registered, broadcast
from horovod.tensorflow.util import _executing_eagerly


def _variable(variable: Any) -> Any:
    """TensorFlow's variable: itself, or that inside a variable of Keras 3."""
    if not isinstance(variable, tf.Variable) and hasattr(variable, "assign"):
        inner = getattr(variable, "value", None)
        if isinstance(inner, tf.Variable):
            return inner
    return variable


def _is_resource(variable: Any) -> bool:
    """Whether the variable is of the kind that TensorFlow 2 has only; the others are of tf.compat.v1."""
    return hasattr(variable, "handle")


def _unique(names: Iterable[str]) -> list[str]:
    """The names, with a number for repeated ones: by default all eager variables are called Variable."""
    seen: Counter[str] = Counter()
    unique = []
    for name in names:
        seen[name] += 1
        unique.append(name if seen[name] == 1 else f"{name}_{seen[name]}")
    return unique


def broadcast_in_place(
    variables: Sequence[Any], root_rank: int, name: str | None, process_set: ProcessSet
) -> list[Any]:
    """Replace the values of the variables by those of `root_rank` and return the new values."""
    process_set_id = _registered(process_set)
    found = [_variable(variable) for variable in variables]
    if not found:
        return []
    resources = [_is_resource(variable) for variable in found]
    if any(resources) != all(resources):
        raise ValueError("broadcast_ takes resource variables or reference variables, not both at once")
    op = "HorovodBroadcastInplaceResource" if resources[0] else "HorovodBroadcastInplace"
    ops = native_ops.module()
    run = ops.horovod_broadcast_inplace_resource if resources[0] else ops.horovod_broadcast_inplace
    names = _unique(_normalize_name(variable.name) for variable in found)
    places: dict[Any, list[int]] = {}
    for place, variable in enumerate(found):
        places.setdefault(variable.dtype.base_dtype, []).append(place)
    values: list[Any] = [None] * len(found)
    for members in places.values():
        tensors = [tf.convert_to_tensor(found[place]) for place in members]
        received = run(
            tensors,
            root_rank=root_rank,
            variable_names=[names[place] for place in members],
            process_set_id=process_set_id,
            **_name(op, op if name is None else name, *tensors),
        )
        for place, value in zip(members, received, strict=True):
            values[place] = _assigned(found[place], value)
    return values


def _assigned(variable: Any, value: Any) -> Any:
    """Assign, and return the new value; in a graph, one that is available only after the assignment."""
    if _executing_eagerly():
        variable.assign(value)
        return value
    with tf.control_dependencies([variable.assign(value, read_value=False)]):
        return tf.identity(value)


@as_written
def broadcast_variables(
    variables: Iterable[Any],
    root_rank: int,
    process_set: ProcessSet = global_process_set,
    inplace: bool = False,
) -> Any:
    """Replace the values of the variables by those of `root_rank`; in a graph, return the operation that does it.

    `inplace` sends the variables of each device as one operation, which in eager mode is done anyway.
    """
    found = [_variable(variable) for variable in variables]
    if _executing_eagerly():
        broadcast_in_place(found, root_rank, None, process_set)
        return None
    if not inplace:
        names = _unique(_normalize_name(variable.name) for variable in found)
        return tf.group(
            *[
                _replace(each, f"HorovodBroadcast_{name}", root_rank, process_set)
                for each, name in zip(found, names, strict=True)
            ]
        )
    devices: dict[Any, list[Any]] = {}
    for variable in found:
        devices.setdefault((str(variable.device), _is_resource(variable)), []).append(variable)
    return tf.group(
        *[value for group in devices.values() for value in broadcast_in_place(group, root_rank, None, process_set)]
    )


def _replace(variable: Any, name: str, root_rank: int, process_set: ProcessSet) -> Any:
    received = broadcast(tf.convert_to_tensor(variable), root_rank, name, process_set=process_set)
    return variable.assign(received, read_value=False)
