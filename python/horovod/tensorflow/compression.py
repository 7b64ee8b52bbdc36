"""Compression of tensors around a reduction."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from horovod._generic.compression import Compressor, NoneCompressor

__all__ = ["BF16Compressor", "Compression", "Compressor", "FP16Compressor", "NoneCompressor"]


class FP16Compressor(Compressor):
    """Reduces floating-point tensors in float16; other types are left as they are."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """Return the tensor as float16, and its type."""
        return (tf.cast(tensor, tf.float16) if tensor.dtype.is_floating else tensor), tensor.dtype

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """Return the tensor in its own type again."""
        return tf.cast(tensor, ctx) if tensor.dtype != ctx else tensor


class BF16Compressor(Compressor):
    """Reduces floating-point tensors in bfloat16: fewer digits than float16, but nothing is too large or too small."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """Return the tensor as bfloat16 unless it is already that small, and its type."""
        shrinks = tensor.dtype.is_floating and tensor.dtype.size > 2
        return (tf.cast(tensor, tf.bfloat16) if shrinks else tensor), tensor.dtype

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """Return the tensor in its own type again."""
        return tf.cast(tensor, ctx) if tensor.dtype != ctx else tensor


class Compression:
    """The compressors that come with Horovod."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
