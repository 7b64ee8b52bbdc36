"""Outputs of unknown size in a framework's own memory: its allocator is called by the engine, through the table of C
functions that DLPack calls the exchange API (`__dlpack_c_exchange_api__`). Frameworks without that table copy.

Thread rule: any thread; an object belongs to one operation.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from ctypes import c_char_p, c_void_p, cast, py_object, pythonapi, sizeof

from horovod._native.abi import ALLOCATE, SubmitOptions
from horovod._native.library import library

CPU, CUDA, ROCM = 1, 2, 10

_NAME = b"dlpack_exchange_api"
_TENSOR = b"dltensor_versioned"

_new_capsule = pythonapi.PyCapsule_New
_new_capsule.restype, _new_capsule.argtypes = py_object, [c_void_p, c_char_p, c_void_p]
_address_in = pythonapi.PyCapsule_GetPointer
_address_in.restype, _address_in.argtypes = c_void_p, [py_object, c_char_p]


def exchange_api(tensor_class: type) -> int:
    """The address of the table, or 0."""
    capsule = getattr(tensor_class, "__dlpack_c_exchange_api__", None)
    return 0 if capsule is None else (_address_in(capsule, _NAME) or 0)


class Outputs:
    """The outputs of one operation."""

    def __init__(self, exchange: int, device_type: int, device: int, count: int) -> None:
        self._destroy: Callable[[int], None] = library().hvd_dlpack_outputs_destroy
        self._own: int | None = library().hvd_dlpack_outputs_create(exchange, device_type, device, count)

    @property
    def is_possible(self) -> bool:
        """Whether the table is of a version that is known here."""
        return bool(self._own)

    def options(self, wait_follows: bool) -> SubmitOptions:
        """For hvd_submit."""
        allocate = cast(library().hvd_dlpack_allocate, ALLOCATE)
        return SubmitOptions(
            struct_size=sizeof(SubmitOptions),
            wait_follows=int(wait_follows),
            allocate=allocate,
            allocate_context=self._own,
        )

    def take(self, index: int) -> object | None:
        """The output as a capsule for the framework's `from_dlpack`, which has to be called; None: it is empty."""
        address = library().hvd_dlpack_outputs_take(self._own, index)
        return _new_capsule(address, _TENSOR, None) if address else None

    def __del__(self, is_exiting: Callable[[], bool] = sys.is_finalizing) -> None:
        if getattr(self, "_own", None) and not is_exiting():
            self._destroy(self._own)
