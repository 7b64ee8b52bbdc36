"""The backend of Keras, and the module here for it. Nothing is imported before it is needed."""

from __future__ import annotations

import importlib
from types import ModuleType

from horovod._keras.variables import backend_name

_modules = {
    "tensorflow": "horovod._keras.on_tensorflow",
    "torch": "horovod._keras.on_torch",
    "jax": "horovod._keras.on_jax",
}


def module_for(keras: ModuleType) -> ModuleType:
    """The module of the backend in use. They have the same functions: on_tensorflow says which."""
    name = backend_name(keras)
    if name not in _modules:
        raise RuntimeError(
            f"Horovod does not work with Keras on {name}: set KERAS_BACKEND=tensorflow, torch or jax before "
            "the first import of keras"
        )
    return importlib.import_module(_modules[name])


__all__ = ["module_for"]
