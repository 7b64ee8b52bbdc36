"""Loading models so that their optimizers are distributed again, with their state."""

from __future__ import annotations

from collections.abc import Iterable
from types import ModuleType
from typing import Any

from horovod._keras import hooks
from horovod._keras.distributed import is_distributed
from horovod._keras.optimizer import distribute
from horovod._keras.settings import Settings


def load_model(
    keras: ModuleType,
    filepath: Any,
    custom_optimizers: Iterable[type] | None,
    custom_objects: dict[str, Any] | None,
    settings: Settings,
) -> Any:
    """Load a model with `keras.models.load_model`; its optimizer is distributed before it gets its state."""
    objects = {cls.__name__: cls for cls in custom_optimizers or ()}
    objects.update(custom_objects or {})
    hooks.install(keras)

    def wrap(optimizer: Any) -> Any:
        if isinstance(optimizer, str | dict):
            optimizer = keras.optimizers.get(optimizer)
        return optimizer if is_distributed(optimizer) else distribute(optimizer, settings)

    with hooks.wrapping_optimizers(wrap):
        return keras.models.load_model(filepath, custom_objects=objects)


__all__ = ["load_model"]
