"""Which types of elements can be sent, and as what. Unsupported types are sent as others of their size.

Thread rule: plain functions.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from horovod._generic.reduce_ops import Product, Sum
from horovod._native.abi import DType, Kind
from horovod.jax.call import Call

_CODES: dict[str, DType] = {
    "bool": DType.BOOL,
    "int8": DType.INT8,
    "int16": DType.INT16,
    "int32": DType.INT32,
    "int64": DType.INT64,
    "uint8": DType.UINT8,
    "uint16": DType.UINT16,
    "float16": DType.FLOAT16,
    "bfloat16": DType.BFLOAT16,
    "float32": DType.FLOAT32,
    "float64": DType.FLOAT64,
    "complex64": DType.COMPLEX64,
    "complex128": DType.COMPLEX128,
}
_AS_SIGNED = {"uint32": DType.INT32, "uint64": DType.INT64}
_REDUCING = (Kind.ALLREDUCE, Kind.REDUCESCATTER)


def code_of(dtype: Any, call: Call) -> int:
    """The engine's type for the elements; ValueError, with a remedy, if this call does not support them."""
    name = np.dtype(dtype).name
    if name in _CODES:
        return _CODES[name]
    reduces = call.kind in _REDUCING
    if name in _AS_SIGNED:
        scales = call.prescale_factor != 1.0 or call.postscale_factor != 1.0
        if reduces and (call.op not in (Sum, Product) or scales):
            raise ValueError(f"{call.verb} of {name} supports only op=hvd.Sum and hvd.Product; cast to a signed type")
        return _AS_SIGNED[name]  # the bits of sums and products are the same
    if name.startswith("float8"):
        if reduces:
            raise ValueError(f"{call.verb} of {name}: the range of float8 does not hold sums; cast it to bfloat16")
        return DType.UINT8
    if name.startswith(("int4", "uint4", "int2", "uint2", "int1", "uint1", "float4")):
        raise ValueError(f"{call.verb} of {name}: elements of less than a byte cannot be sent; cast them to int8")
    raise ValueError(f"{call.verb}: arrays of type {name} are not supported")


def is_key(leaf: Any) -> bool:
    """Whether it is an array of random keys (`jax.random.key`), whose type the engine does not support."""
    dtype = getattr(leaf, "dtype", None)
    return dtype is not None and jnp.issubdtype(dtype, jax.dtypes.prng_key)
