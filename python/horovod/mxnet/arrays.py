"""Access to MXNet arrays through their handles, because their memory may not be known yet."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import c_void_p
from typing import Any

import mxnet as mx
import numpy as np
from mxnet import autograd
from mxnet.ndarray import NDArray

from horovod._generic.tensors import Tensors
from horovod._native.abi import DType
from horovod._native.operations import EngineMemory, TensorView
from horovod.mxnet import native

_DTYPES: dict[str, int] = {
    "uint8": DType.UINT8,
    "int8": DType.INT8,
    "int32": DType.INT32,
    "int64": DType.INT64,
    "float16": DType.FLOAT16,
    "float32": DType.FLOAT32,
    "float64": DType.FLOAT64,
}


def check(tensor: Any) -> None:
    """ValueError, with the reason, for an array that cannot be sent."""
    if not isinstance(tensor, NDArray):
        raise ValueError(f"expected an array of MXNet (mx.nd.NDArray), not {type(tensor).__name__}")
    if tensor.stype != "default":
        raise ValueError(f"arrays of storage type {tensor.stype} are not supported; use tostype('default')")
    _code_of(tensor.dtype)


def _code_of(dtype: Any) -> int:
    name = "bfloat16" if "bfloat16" in str(dtype) else np.dtype(dtype).name
    if name in _DTYPES:
        return _DTYPES[name]
    if name == "bfloat16":
        raise ValueError(
            "bfloat16 is not supported: MXNet has such arrays inside converted networks only, without arithmetic "
            "outside of them; use astype('float32') or, for less to send, Compression.fp16"
        )
    raise ValueError(f"arrays of type {name} are not supported; use astype")


def is_on_host(tensor: NDArray) -> bool:
    """Whether the engine can use its memory."""
    return bool(tensor.context.device_type.startswith("cpu"))


def shape_of(tensor: NDArray) -> tuple[int, ...]:
    """The shape. Only arrays of mx.np can be scalars: others without a shape have no elements."""
    shape: tuple[int, ...] = tensor.shape
    return shape if shape or isinstance(tensor, mx.np.ndarray) else (0,)


def host_copy(tensor: NDArray) -> NDArray:
    """A copy in host memory and row-major order, whatever device and layout the array has. Does not wait."""
    check(tensor)
    shape = shape_of(tensor)
    with autograd.pause():
        return _without_elements(shape, tensor) if 0 in shape else tensor.copyto(mx.cpu())


def back(result: NDArray, like: NDArray) -> NDArray:
    """The result on the device of `like`."""
    with autograd.pause():
        return result if is_on_host(like) else result.as_in_context(like.context)


def write(source: NDArray, target: NDArray) -> None:
    """Replace the elements of `target`. Does not wait."""
    if 0 not in shape_of(target):
        with autograd.pause():
            source.copyto(target)


def _without_elements(shape: tuple[int, ...], like: NDArray) -> NDArray:
    package = mx.np if isinstance(like, mx.np.ndarray) else mx.nd
    return package.array(np.empty(shape, like.dtype), dtype=like.dtype)


class MxnetTensors(Tensors[NDArray]):
    """Arrays in host memory. A view's `data` is the array's handle."""

    def view(self, tensor: NDArray) -> TensorView:
        check(tensor)
        return TensorView(tensor, tensor.handle.value, _code_of(tensor.dtype), shape_of(tensor))

    view_to_write = view

    def empty_like(self, tensor: NDArray) -> NDArray:
        return host_copy(tensor)

    def adopt(self, memory: EngineMemory, like: NDArray) -> NDArray:
        if memory.size_in_bytes == 0:
            return _without_elements(memory.shape, like)
        return type(like)(c_void_p(native.adopt(memory)))

    def read_splits(self, splits: Any) -> Sequence[int]:
        if isinstance(splits, NDArray):
            if splits.dtype != np.int32 or splits.ndim != 1:
                raise ValueError(f"splits must be 1-D and int32, not {splits.ndim}-D and {np.dtype(splits.dtype).name}")
            splits = splits.asnumpy().tolist()
        elif not isinstance(splits, (list, tuple)) or not all(isinstance(each, (int, np.integer)) for each in splits):
            raise ValueError("splits must be a list of ints or an array of int32")
        return [int(each) for each in splits]

    def make_splits(self, received: Sequence[int], like: Any) -> NDArray:
        return mx.nd.array(received, dtype="int32", ctx=mx.cpu())
