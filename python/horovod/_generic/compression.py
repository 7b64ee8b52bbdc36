"""Compression around a reduction: the reduction itself runs in the compressed type."""

from __future__ import annotations

from typing import Any, Protocol


class Compressor(Protocol):
    """What to do with a tensor before and after a reduction. Any class with these two static methods works."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """Return the tensor to reduce, and the context that `decompress` needs."""

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """Return the reduced tensor in its original form."""


class NoneCompressor(Compressor):
    """Leaves tensors as they are."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """Return the tensor itself."""
        return tensor, None

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """Return the tensor itself."""
        return tensor
