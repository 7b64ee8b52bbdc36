"""`run` for Keras on any backend; it recovers from the errors of that backend."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TypeVar

from horovod._keras.variables import backend_name

R = TypeVar("R")


def run(func: Callable[..., R]) -> Callable[..., R]:
    """Decorator of the training function, whose first argument is the state; see horovod.tensorflow.elastic.run."""
    import keras

    decorate: Callable[[Callable[..., R]], Callable[..., R]] = importlib.import_module(
        f"horovod.{backend_name(keras)}.elastic"
    ).run
    return decorate(func)


__all__ = ["run"]
