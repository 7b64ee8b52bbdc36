"""Compression around a reduction: casts, and reductions that exchange something smaller (reducing_compression.py)."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from horovod._generic.compression import Compressor, NoneCompressor
from horovod.jax.reducing_compression import Int8Compressor, PowerSGDCompressor, TopKCompressor


class _Cast(Compressor):
    """Reduces wider floating point arrays in another type; others are left as they are."""

    dtype: Any

    @classmethod
    def compress(cls, tensor: Any) -> tuple[Any, Any]:
        """Return the array in the smaller type, and its own."""
        is_wider = jnp.issubdtype(tensor.dtype, jnp.floating) and tensor.dtype.itemsize > 2
        return (tensor.astype(cls.dtype) if is_wider else tensor), tensor.dtype

    @classmethod
    def decompress(cls, tensor: Any, ctx: Any) -> Any:
        """Return the array in its original type."""
        return tensor.astype(ctx) if tensor.dtype != ctx else tensor


class FP16Compressor(_Cast):
    """Reduces in float16."""

    dtype = jnp.float16


class BF16Compressor(_Cast):
    """Reduces in bfloat16, which has the range of float32."""

    dtype = jnp.bfloat16


class Compression:
    """The compressors that come with Horovod."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
    int8 = Int8Compressor()
    topk = TopKCompressor
    powersgd = PowerSGDCompressor


__all__ = ["BF16Compressor", "Compression", "Compressor", "FP16Compressor", "NoneCompressor"]
