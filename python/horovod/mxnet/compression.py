"""Compression of arrays around a reduction."""

from __future__ import annotations

from typing import Any

from horovod._generic.compression import Compressor, NoneCompressor

__all__ = ["Compression", "Compressor", "FP16Compressor", "NoneCompressor"]


class FP16Compressor(Compressor):
    """Reduces floating point arrays in float16; other types are left as they are."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """Return the array as float16, and its type."""
        dtype = tensor.dtype
        return (tensor.astype("float16", copy=False) if "float" in str(dtype) else tensor), dtype

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """Return the array in its original type."""
        return tensor.astype(ctx, copy=False)


class Compression:
    """The compressors that come with Horovod."""

    none = NoneCompressor
    fp16 = FP16Compressor
