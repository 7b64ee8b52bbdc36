"""Calls the custom calls of libhorovod_jax.so as XLA does on a GPU: frames with a stream and buffers in device memory.

The layouts are those of XLA's header, which test_jax.py compares with the one in jaxlib.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from ctypes import CFUNCTYPE, POINTER, Structure, byref, c_char_p, c_double, c_int, c_int32, c_int64, c_size_t, c_void_p
from pathlib import Path
from typing import Any

import device_array as gpu

from horovod._native.abi import Kind
from horovod._native.library import library_path
from horovod.jax.call import Call, attributes_of

SCALAR, STRING = 3, 4
TYPES = {"bool": 1, "int32": 4, "int64": 5, "float16": 10, "float32": 11, "float64": 12}  # XLA's PrimitiveType


class Version(Structure):
    _fields_ = (("size", c_size_t), ("extensions", c_void_p), ("major", c_int), ("minor", c_int))


class ErrorArguments(Structure):
    _fields_ = (("size", c_size_t), ("extensions", c_void_p), ("message", c_char_p), ("code", c_int))


class ErrorText(Structure):
    _fields_ = (("size", c_size_t), ("extensions", c_void_p), ("error", c_void_p), ("message", c_char_p))


class Answer(Structure):
    """What XLA is asked for: the stream, or in its first half the number of the GPU."""

    _fields_ = (("size", c_size_t), ("extensions", c_void_p), ("context", c_void_p), ("value", c_void_p))


class Ordinal(Structure):
    _fields_ = (("size", c_size_t), ("extensions", c_void_p), ("context", c_void_p), ("value", c_int32))


CREATE = CFUNCTYPE(c_void_p, POINTER(ErrorArguments))
TEXT = CFUNCTYPE(None, POINTER(ErrorText))
STREAM = CFUNCTYPE(c_void_p, POINTER(Answer))
ORDINAL = CFUNCTYPE(c_void_p, POINTER(Ordinal))


class Api(Structure):
    _fields_ = (
        ("size", c_size_t),
        ("extensions", c_void_p),
        ("version", Version),
        ("internal", c_void_p),
        ("create_error", CREATE),
        ("error_text", TEXT),
        ("destroy_error", TEXT),
        ("register", c_void_p),
        ("stream", STREAM),
        ("others", c_void_p * 12),
        ("ordinal", ORDINAL),
    )


class Buffer(Structure):
    _fields_ = (
        ("size", c_size_t),
        ("extensions", c_void_p),
        ("dtype", c_int),
        ("data", c_void_p),
        ("rank", c_int64),
        ("dims", POINTER(c_int64)),
    )


class Buffers(Structure):
    _fields_ = (
        ("size", c_size_t),
        ("extensions", c_void_p),
        ("count", c_int64),
        ("types", c_void_p),
        ("buffers", POINTER(POINTER(Buffer))),
    )


class Span(Structure):
    _fields_ = (("data", c_char_p), ("size", c_size_t))


class Scalar(Structure):
    _fields_ = (("dtype", c_int), ("value", c_void_p))


class Attributes(Structure):
    _fields_ = (
        ("size", c_size_t),
        ("extensions", c_void_p),
        ("count", c_int64),
        ("types", POINTER(c_int)),
        ("names", POINTER(POINTER(Span))),
        ("values", POINTER(c_void_p)),
    )


class Frame(Structure):
    _fields_ = (
        ("size", c_size_t),
        ("extensions", c_void_p),
        ("api", POINTER(Api)),
        ("context", c_void_p),
        ("stage", c_int),
        ("inputs", Buffers),
        ("outputs", Buffers),
        ("attributes", Attributes),
    )


class Xla:
    """One stream of one GPU. `run` is a custom call; it returns when the call is launched."""

    def __init__(self, device: gpu.Device, size_of_api: int = ctypes.sizeof(Api)) -> None:
        self._library = ctypes.CDLL(str(Path(library_path()).with_name("libhorovod_jax.so")))
        self._handler = self._library.hvd_jax_run_on_gpu
        self._handler.restype, self._handler.argtypes = c_void_p, [POINTER(Frame)]
        self._device = device
        self._errors: list[str] = []
        self._kept: list[Any] = []
        self.refuses_stream = False
        self._api = Api(size=size_of_api)
        self._api.create_error = self._keep(CREATE(self._create_error))
        self._api.error_text = self._keep(TEXT(self._error_text))
        self._api.destroy_error = self._keep(TEXT(lambda _: None))
        self._api.stream = self._keep(STREAM(self._stream))
        self._api.ordinal = self._keep(ORDINAL(self._ordinal))

    def _keep(self, function: Callable[..., Any]) -> Any:
        self._kept.append(function)
        return function

    def _create_error(self, arguments: Any) -> int:
        self._errors.append(arguments.contents.message.decode())
        return len(self._errors)

    def _error_text(self, arguments: Any) -> None:
        arguments.contents.message = b"no stream today"

    def _stream(self, answer: Any) -> int | None:
        answer.contents.value = self._device.stream.value
        return 1 if self.refuses_stream else None

    def _ordinal(self, answer: Any) -> None:
        answer.contents.value = self._device.ordinal

    def run(self, call: Call, inputs: Sequence[gpu.DeviceArray], outputs: Sequence[gpu.DeviceArray]) -> None:
        """RuntimeError with the text of the call's error."""
        kept: list[Any] = []
        frame = Frame(size=ctypes.sizeof(Frame), api=ctypes.pointer(self._api), stage=3)
        frame.inputs, frame.outputs = _buffers(inputs, kept), _buffers(outputs, kept)
        frame.attributes = _attributes(call, kept)
        error = self._handler(byref(frame))
        if error:
            raise RuntimeError(self._errors[error - 1])


def _buffers(arrays: Sequence[gpu.DeviceArray], kept: list[Any]) -> Buffers:
    pointers = (POINTER(Buffer) * len(arrays))()
    for i, array in enumerate(arrays):
        shape = array.values.shape
        dims = (c_int64 * max(len(shape), 1))(*shape)
        data = array.memory.value if array.values.size else None
        buffer = Buffer(dtype=TYPES[array.values.dtype.name], data=data, rank=len(shape), dims=dims)
        kept += [dims, buffer]
        pointers[i] = ctypes.pointer(buffer)
    kept.append(pointers)
    return Buffers(count=len(arrays), buffers=pointers)


def _attributes(call: Call, kept: list[Any]) -> Attributes:
    found = sorted(attributes_of(call).items())
    types, names = (c_int * len(found))(), (POINTER(Span) * len(found))()
    values = (c_void_p * len(found))()
    for i, (name, value) in enumerate(found):
        names[i] = ctypes.pointer(Span(name.encode(), len(name)))
        if isinstance(value, str):
            types[i], attribute = STRING, Span(value.encode(), len(value))
        else:
            number = c_double(value) if isinstance(value, float) else c_int64(value)
            kept.append(number)
            types[i], attribute = SCALAR, Scalar(0, ctypes.addressof(number))
        kept += [names[i], attribute]
        values[i] = ctypes.addressof(attribute)
    kept += [types, names, values]
    return Attributes(count=len(found), types=types, names=names, values=values)


def reduce_call(names: Sequence[str], op: int, groups: Sequence[int] = (), **options: Any) -> Call:
    return Call(Kind.ALLREDUCE, "allreduce", tuple(names), tuple(groups or [1] * len(names)), op, **options)
