"""Access to NumPy arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ctypes import addressof, c_char
from typing import Any

import numpy as np
from numpy.typing import NDArray

from horovod._generic.tensors import Tensors
from horovod._native.abi import DType
from horovod._native.operations import EngineMemory, TensorView

Array = NDArray[Any]

# bfloat16 of the package ml_dtypes is added with its first array.
_DTYPES: dict[np.dtype[Any], int] = {
    np.dtype(np.uint8): DType.UINT8,
    np.dtype(np.int8): DType.INT8,
    np.dtype(np.uint16): DType.UINT16,
    np.dtype(np.int16): DType.INT16,
    np.dtype(np.int32): DType.INT32,
    np.dtype(np.int64): DType.INT64,
    np.dtype(np.float16): DType.FLOAT16,
    np.dtype(np.float32): DType.FLOAT32,
    np.dtype(np.float64): DType.FLOAT64,
    np.dtype(np.bool_): DType.BOOL,
    np.dtype(np.complex64): DType.COMPLEX64,
    np.dtype(np.complex128): DType.COMPLEX128,
}

_first_byte: Callable[[Any], c_char] = c_char.from_buffer


def _code_of(dtype: np.dtype[Any]) -> int:
    code = _DTYPES.get(dtype)
    if code is None:
        if dtype.name != "bfloat16":
            raise ValueError(f"arrays of type {dtype} are not supported")
        code = _DTYPES[dtype] = DType.BFLOAT16
    return code


class NumpyTensors(Tensors[Array]):
    """Arrays, and NumPy scalars as arrays without dimensions."""

    def view(self, tensor: Array) -> TensorView:
        if not isinstance(tensor, np.ndarray):
            if not isinstance(tensor, np.generic):
                raise ValueError(f"expected a NumPy array or scalar, not {type(tensor).__name__}")
            tensor = np.asarray(tensor)
        code = _code_of(tensor.dtype)
        try:
            # Seven times faster than tensor.ctypes.data, but only for writable arrays that support the buffer protocol.
            address = addressof(_first_byte(tensor))
        except (TypeError, ValueError):
            if not tensor.flags.c_contiguous:
                raise ValueError("the array is not contiguous; pass np.ascontiguousarray(array)") from None
            address = tensor.ctypes.data
        return TensorView(tensor, address, code, tensor.shape)

    def view_to_write(self, tensor: Array) -> TensorView:
        if not isinstance(tensor, np.ndarray):
            raise ValueError(f"only a NumPy array can be changed in place, not {type(tensor).__name__}")
        if not tensor.flags.writeable:
            raise ValueError("the array is read-only, so it cannot be changed in place; pass a copy")
        return self.view(tensor)

    def empty_like(self, tensor: Array) -> Array:
        if not isinstance(tensor, (np.ndarray, np.generic)):
            raise ValueError(f"expected a NumPy array or scalar, not {type(tensor).__name__}")
        return np.empty(tensor.shape, tensor.dtype)

    def adopt(self, memory: EngineMemory, like: Array) -> Array:
        if memory.size_in_bytes == 0:
            return np.empty(memory.shape, like.dtype)
        return np.asarray(memory).view(like.dtype).reshape(memory.shape)

    def read_splits(self, splits: Any) -> Sequence[int]:
        array = np.asarray(splits)
        if array.size == 0:
            return ()
        is_list = isinstance(splits, (list, tuple))
        if array.ndim != 1 or (array.dtype.kind not in "iu" if is_list else array.dtype != np.int32):
            raise ValueError(f"splits must be a list of ints or a 1-D array of int32, not {array.ndim}-D {array.dtype}")
        values: list[int] = array.tolist()
        return values

    def make_splits(self, received: Sequence[int], like: Any) -> Array:
        return np.array(received, np.int32)
