"""Collectives on picklable objects. They are sent as bytes, so no framework is needed."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import addressof, c_int64, c_ubyte
from typing import Any

import cloudpickle

from horovod._generic.collectives import Collectives
from horovod._generic.process_sets import ProcessSet, global_process_set
from horovod._generic.reduce_ops import Max
from horovod._generic.tensors import Tensors
from horovod._native.abi import DType
from horovod._native.library import checked, library
from horovod._native.operations import EngineMemory, TensorView

_Buffer = ctypes.Array[Any]
_DTYPES = {c_ubyte: DType.UINT8, c_int64: DType.INT64}


class _Buffers(Tensors[_Buffer]):
    """One-dimensional ctypes arrays as tensors."""

    def view(self, tensor: _Buffer) -> TensorView:
        return TensorView(tensor, addressof(tensor), _DTYPES[tensor._type_], (len(tensor),))

    view_to_write = view

    def empty_like(self, tensor: _Buffer) -> _Buffer:
        empty: _Buffer = type(tensor)()
        return empty

    def adopt(self, memory: EngineMemory, like: _Buffer) -> _Buffer:
        array_type: type[_Buffer] = like._type_ * memory.shape[0]
        if not memory.address:
            return array_type()
        buffer = array_type.from_address(memory.address)
        setattr(buffer, "memory", memory)  # noqa: B010  # kept alive; ctypes arrays take any attribute
        return buffer

    def read_splits(self, splits: Sequence[int]) -> Sequence[int]:
        return splits

    def make_splits(self, received: Sequence[int], like: Any) -> _Buffer:
        return (ctypes.c_int32 * len(received))(*received)


_collectives = Collectives(_Buffers())


def _pickled(obj: Any) -> _Buffer:
    data = cloudpickle.dumps(obj)
    return (c_ubyte * len(data)).from_buffer_copy(data)


# Independent of the object's type: ranks that pass different types would otherwise wait forever.
_DEFAULT_NAME = "object"


def broadcast_object(
    obj: Any, root_rank: int = 0, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Any:
    """Return the object of `root_rank`, unpickled; the root returns its own. Other ranks may pass any object."""
    name = _DEFAULT_NAME if name is None else name
    is_root = checked(library().hvd_rank()) == root_rank
    data = _pickled(obj) if is_root else (c_ubyte * 0)()
    size = _collectives.broadcast_((c_int64 * 1)(len(data)), root_rank, f"{name}.sz", process_set)
    if not is_root:
        data = (c_ubyte * size[0])()
    _collectives.broadcast_(data, root_rank, f"{name}.t", process_set)
    return obj if is_root else cloudpickle.loads(data)


def allgather_object(obj: Any, name: str | None = None) -> list[Any]:
    """Return the objects of all ranks, in rank order; they may be of different types."""
    return allgather_object_in(global_process_set, obj, name)


def allgather_object_in(process_set: ProcessSet, obj: Any, name: str | None = None) -> list[Any]:
    """As `allgather_object`, for the ranks of a set."""
    name = _DEFAULT_NAME if name is None else name
    data = _pickled(obj)
    sizes = _collectives.allgather((c_int64 * 1)(len(data)), f"{name}.sz", process_set)
    gathered = memoryview(_collectives.allgather(data, f"{name}.t", process_set))
    objects, start = [], 0
    for size in sizes:
        objects.append(cloudpickle.loads(gathered[start : start + size]))
        start += size
    return objects


def max_of_integers(values: Sequence[int], name: str) -> list[int]:
    """Return, the element-wise maximum of the lists of all ranks. One allreduce, nothing is pickled."""
    return list(_collectives.allreduce_((c_int64 * len(values))(*values), name=name, op=Max))


def allgather_integers(values: Sequence[int], name: str) -> list[list[int]]:
    """Return the lists of all ranks, in rank order; all have the same length."""
    gathered = list(_collectives.allgather((c_int64 * len(values))(*values), name))
    return [gathered[start : start + len(values)] for start in range(0, len(gathered), len(values))]
