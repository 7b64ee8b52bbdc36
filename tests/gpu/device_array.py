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


def cuda() -> Any:
    """The driver, for calls that may fail."""
    return _cuda


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
        self._side: list[c_void_p] = []

    def __enter__(self) -> Device:
        call("cuCtxPushCurrent_v2", self._context)
        return self

    def __exit__(self, *_: object) -> None:
        call("cuCtxPopCurrent_v2", byref(c_void_p()))

    def side_stream(self, number: int) -> c_void_p:
        """Stream 0 is this object's own, 1 the default stream, and others are made when they are asked for."""
        if number < 2:
            return self.stream if number == 0 else c_void_p()
        while len(self._side) < number - 1:
            made = c_void_p()
            with self:
                call("cuStreamCreateWithPriority", byref(made), 1, 0)
            self._side.append(made)
        return self._side[number - 2]

    def close(self) -> None:
        with self:
            for stream in (self.stream, *self._side):
                call("cuStreamSynchronize", stream)
                call("cuStreamDestroy_v2", stream)
        call("cuDevicePrimaryCtxRelease_v2", self._device)


class DeviceArray:
    """A NumPy array's elements in device memory."""

    def __init__(self, values: np.ndarray[Any, Any], device: Device, stream: c_void_p | None = None) -> None:
        """`stream` makes the values, and is the one that operations are submitted on; default: that of the device."""
        self.device = device
        self.stream = device.stream if stream is None else stream
        self.values = np.ascontiguousarray(values).reshape(values.shape)  # kept: the copy reads it later
        self.dtype = int(DType[values.dtype.name.upper()])
        self.memory = c_uint64()
        with device:
            call("cuMemAlloc_v2", byref(self.memory), c_size_t(max(values.nbytes, 1)))
            if values.nbytes:
                pointer = self.values.ctypes.data_as(c_void_p)
                call("cuMemcpyHtoDAsync_v2", self.memory, pointer, c_size_t(values.nbytes), self.stream)

    def view(self) -> TensorView:
        return TensorView(
            self, self.memory.value, self.dtype, self.values.shape, self.device.ordinal, self.stream.value or 0
        )

    def numpy(self) -> np.ndarray[Any, Any]:
        return read(self.memory.value, self.values, self.device)

    def free(self) -> None:
        with self.device:
            call("cuStreamSynchronize", self.stream)
            call("cuMemFree_v2", self.memory)


def read(
    address: int, like: np.ndarray[Any, Any], device: Device, stream: c_void_p | None = None
) -> np.ndarray[Any, Any]:
    """The elements at this address, as an array of the shape and type of `like`."""
    result = np.empty_like(like)
    stream = device.stream if stream is None else stream
    with device:
        if result.nbytes:
            pointer = result.ctypes.data_as(c_void_p)
            call("cuMemcpyDtoHAsync_v2", pointer, c_uint64(address), c_size_t(result.nbytes), stream)
        call("cuStreamSynchronize", stream)
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
