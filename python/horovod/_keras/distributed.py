"""Recognises distributed optimizers; for modules that the optimizers themselves import."""

from __future__ import annotations

from typing import Any, ClassVar

from horovod._keras.settings import Settings


class Distributed:
    """Base of every optimizer that reduces gradients."""

    _hvd_settings: ClassVar[Settings]


def is_distributed(optimizer: Any) -> bool:
    """Whether it reduces gradients: itself, or the one in a loss scale optimizer."""
    return isinstance(optimizer, Distributed) or isinstance(getattr(optimizer, "inner_optimizer", None), Distributed)
