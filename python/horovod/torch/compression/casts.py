"""Compressors that change the type of the tensor; the reduction itself runs in the smaller type."""

from __future__ import annotations

import torch

from horovod._generic.compression import Compressor, NoneCompressor


class FP16Compressor(Compressor):
    """Sends floating-point tensors as float16."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.dtype]:
        """Return the tensor as float16, and its type."""
        return (tensor.to(torch.float16) if tensor.dtype.is_floating_point else tensor), tensor.dtype

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: torch.dtype) -> torch.Tensor:
        """Return the tensor in its own type again."""
        return tensor.to(ctx)


class BF16Compressor(Compressor):
    """Sends floating-point tensors as bfloat16: fewer digits than float16, but nothing is too large or too small."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.dtype]:
        """Return the tensor as bfloat16 unless it is already that small, and its type."""
        shrinks = tensor.dtype.is_floating_point and tensor.element_size() > 2
        return (tensor.to(torch.bfloat16) if shrinks else tensor), tensor.dtype

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: torch.dtype) -> torch.Tensor:
        """Return the tensor in its own type again."""
        return tensor.to(ctx)


__all__ = ["BF16Compressor", "Compressor", "FP16Compressor", "NoneCompressor"]
