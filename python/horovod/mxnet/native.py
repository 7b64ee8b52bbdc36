"""libhorovod_mxnet.so, which pushes operations to MXNet's engine: loading it, and operations in flight.

It is installed next to libhorovod.so and works with any version of MXNet 1.9: it looks up the functions that it needs
in the libmxnet.so that Python has loaded. src/adapters/mxnet/library.cc has the same declarations.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable, Sequence
from ctypes import byref, c_char_p, c_double, c_int32, c_int64, c_void_p
from pathlib import Path
from typing import Any

import mxnet as mx
from mxnet.base import MXNetError

from horovod._generic.handles import Pending, handles
from horovod._native import operations
from horovod._native.abi import Code, Handle, Request, Tensor
from horovod._native.exceptions import HorovodInternalError
from horovod._native.library import library, library_path
from horovod._native.operations import EngineMemory
from horovod.mxnet.errors import CollectiveError

_WAIT_SLICE = 0.2  # seconds; Python delivers signals (Ctrl-C) between calls only
# name -> result, arguments
_PROTOTYPES: dict[str, tuple[Any, list[Any]]] = {
    "hvd_mxnet_load": (c_char_p, [c_char_p]),
    "hvd_mxnet_push": (c_char_p, [c_void_p, c_int32, c_int32, c_int64, c_void_p]),
    "hvd_mxnet_wait_submitted": (c_int32, [c_void_p, c_double, c_void_p]),
    "hvd_mxnet_refusal": (c_char_p, [c_void_p]),
    "hvd_mxnet_is_done": (c_int32, [c_void_p]),
    "hvd_mxnet_forget": (None, [c_void_p]),
    "hvd_mxnet_adopt": (c_char_p, [c_void_p, c_void_p]),
    "hvd_mxnet_wait_all": (c_int64, [c_double]),
}


@functools.cache
def adapter() -> Any:
    """The loaded library; ImportError if it is missing or this MXNet cannot be used."""
    library()  # libhorovod.so first: the other one then uses the same
    path = str(Path(library_path()).with_name("libhorovod_mxnet.so"))
    try:
        found = ctypes.CDLL(path)
    except OSError as error:
        raise ImportError(f"cannot load Horovod's library for MXNet: {error}; reinstall horovod") from error
    for name, (result, arguments) in _PROTOTYPES.items():
        function = getattr(found, name)
        function.restype, function.argtypes = result, arguments
    if problem := found.hvd_mxnet_load(mx.base._LIB._name.encode()):
        raise ImportError(f"Horovod cannot be used with MXNet {mx.__version__}: {problem.decode()}")
    return found


class Pushed(Pending):
    """An operation that was pushed to MXNet's engine. MXNet keeps its arrays alive, even without this object."""

    __slots__ = ("_forget", "_ticket")

    def __init__(self, ticket: int, forget: Callable[[int], None], result: Callable[[int], Any]) -> None:
        super().__init__(0, None, result)
        self._ticket = ticket
        self._forget = forget

    def wait(self) -> None:
        """Wait until MXNet has run and the engine has finished the operation; raise if it failed. Interruptible."""
        handle, code = Handle(), int(Code.TIMED_OUT)
        while code == Code.TIMED_OUT:
            code = adapter().hvd_mxnet_wait_submitted(self._ticket, _WAIT_SLICE, byref(handle))
        if code != Code.OK:
            text = adapter().hvd_mxnet_refusal(self._ticket).decode(errors="replace")
            raise MXNetError(text) if code == Code.INVALID_ARGUMENT else CollectiveError(text)
        self.native = handle.value
        try:
            operations.wait(self.native)
        except HorovodInternalError as error:
            raise CollectiveError(str(error), origin=error.origin) from None
        except ValueError as error:
            raise MXNetError(str(error)) from None

    def is_done(self) -> bool:
        """Whether `wait` would return at once."""
        return bool(adapter().hvd_mxnet_is_done(self._ticket))

    def release(self) -> None:
        """Release the operation, and the engine's handle."""
        ticket, self._ticket, self.native = self._ticket, 0, 0
        if ticket:
            self._forget(ticket)

    def __del__(self, is_exiting: Callable[[], bool] = sys.is_finalizing) -> None:
        if getattr(self, "_ticket", 0) and not is_exiting():
            self._forget(self._ticket)


def push(requests: Sequence[Request], priority: int, result: Callable[[int], Any]) -> Pushed:
    """Push one request, or a group. Their inputs' `data` are handles of arrays, not addresses."""
    functions, ticket = adapter(), c_void_p()
    group = (Request * len(requests))(*requests)
    if problem := functions.hvd_mxnet_push(group, len(requests), priority, handles.world, byref(ticket)):
        raise MXNetError(problem.decode(errors="replace"))
    return Pushed(ticket.value or 0, functions.hvd_mxnet_forget, result)


def adopt(memory: EngineMemory) -> int:
    """The handle of a new array that owns the engine's memory."""
    shape = (c_int64 * len(memory.shape))(*memory.shape)
    tensor = Tensor(
        struct_size=ctypes.sizeof(Tensor),
        dtype=memory.dtype,
        ndim=len(memory.shape),
        shape=shape,
        data=memory.address,
    )
    array = c_void_p()
    if problem := adapter().hvd_mxnet_adopt(byref(tensor), byref(array)):
        raise MXNetError(problem.decode(errors="replace"))
    memory.address = 0
    return array.value or 0


def wait_all(seconds: float) -> int:
    """Wait until nothing is in flight, for this time at most, and return the number of operations left."""
    return int(adapter().hvd_mxnet_wait_all(seconds))
