"""Arrays in GPU memory for tests: only the driver library is used, so they work on a GPU and on the stand-in alike.

`import device_array` opens the driver. Copies to and from the device are synchronous with the array's own stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import byref, c_int, c_size_t, c_uint64, c_void_p
from typing import Any

import driver
import numpy as np

from horovod._native import operations
from horovod._native.abi import DType, Kind
from horovod._native.operations import TensorView

_cuda = driver.open_driver()
_CODES = {np.dtype(code.name.lower()): int(code) for code in DType if code.name not in ("BFLOAT16", "BOOL")}
_CODES[np.dtype(bool)] = int(DType.BOOL)


def call(name: str, *arguments: Any) -> None:
    """Call a function of the driver; RuntimeError unless it succeeds."""
    code = getattr(_cuda, name)(*arguments)
    if code != 0:
        raise RuntimeError(f"{name} returned {code}")


class Device:
    """A GPU and a stream on it; a context manager that makes its context current."""

    def __init__(self, ordinal: int) -> None:
        call("cuInit", 0)
        self.ordinal = ordinal
        self._device = c_int()
        self._context = c_void_p()
        call("cuDeviceGet", byref(self._device), ordinal)
        call("cuDevicePrimaryCtxRetain", byref(self._context), self._device)
        self.stream = c_void_p()
        with self:
            call("cuStreamCreateWithPriority", byref(self.stream), 1, 0)

    def __enter__(self) -> Device:
        call("cuCtxPushCurrent_v2", self._context)
        return self

    def __exit__(self, *_: object) -> None:
        call("cuCtxPopCurrent_v2", byref(c_void_p()))

    def close(self) -> None:
        with self:
            call("cuStreamSynchronize", self.stream)
            call("cuStreamDestroy_v2", self.stream)
        call("cuDevicePrimaryCtxRelease_v2", self._device)


class DeviceArray:
    """A NumPy array's elements in device memory."""

    def __init__(self, values: np.ndarray[Any, Any], device: Device, code: int | None = None) -> None:
        self.device = device
        self.values = np.ascontiguousarray(values).reshape(values.shape)  # kept: the copy reads it later
        self.dtype = _CODES[values.dtype] if code is None else code
        self.memory = c_uint64()
        with device:
            call("cuMemAlloc_v2", byref(self.memory), c_size_t(max(values.nbytes, 1)))
            if values.nbytes:
                pointer = self.values.ctypes.data_as(c_void_p)
                call("cuMemcpyHtoDAsync_v2", self.memory, pointer, c_size_t(values.nbytes), device.stream)

    def view(self) -> TensorView:
        return TensorView(
            self, self.memory.value, self.dtype, self.values.shape, self.device.ordinal, self.device.stream.value or 0
        )

    def numpy(self) -> np.ndarray[Any, Any]:
        return read(self.memory.value, self.values, self.device)

    def free(self) -> None:
        with self.device:
            call("cuStreamSynchronize", self.device.stream)
            call("cuMemFree_v2", self.memory)


def read(address: int, like: np.ndarray[Any, Any], device: Device) -> np.ndarray[Any, Any]:
    """The elements at this address, as an array of the shape and type of `like`."""
    result = np.empty_like(like)
    with device:
        if result.nbytes:
            pointer = result.ctypes.data_as(c_void_p)
            call("cuMemcpyDtoHAsync_v2", pointer, c_uint64(address), c_size_t(result.nbytes), device.stream)
        call("cuStreamSynchronize", device.stream)
    return result


def start(kind: Kind, name: str, source: DeviceArray, target: DeviceArray | None, **options: Any) -> int:
    """Submit one operation and return its handle."""
    request = operations.make_request(kind, name, source.view(), target.view() if target else None, **options)
    return operations.submit([request], False)


def start_many(kind: Kind, items: Sequence[tuple[str, DeviceArray, DeviceArray]], **options: Any) -> list[int]:
    return [start(kind, name, source, target, **options) for name, source, target in items]


def finish(handle: int) -> None:
    operations.wait(handle)
    operations.release(handle)


def finish_on_stream(handle: int, device: Device) -> None:
    """Order the device's stream behind the operation, and keep the handle."""
    operations.wait_on_stream(handle, device.stream.value or 0)
