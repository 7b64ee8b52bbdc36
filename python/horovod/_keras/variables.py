"""Access to models and optimizers of every version of Keras: Keras 3, tf_keras 2 and its legacy optimizers."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any

import numpy as np


def keras_of(thing: Any) -> ModuleType:
    """The Keras package that an object of a model, an optimizer or a callback belongs to."""
    for cls in type(thing).__mro__:
        root = cls.__module__.partition(".")[0]
        if root in ("keras", "tf_keras"):
            return importlib.import_module(root)
    raise ValueError(f"{type(thing).__name__} is not an object of Keras")


def is_keras_3(keras: ModuleType) -> bool:
    """Whether this package has backends other than TensorFlow."""
    return int(getattr(keras, "__version__", "2").partition(".")[0]) >= 3  # tf.keras of Keras 2 may have no __version__


def backend_name(keras: ModuleType) -> str:
    """The backend: "tensorflow", "torch" or "jax"."""
    return str(keras.backend.backend()) if is_keras_3(keras) else "tensorflow"


def native(variable: Any) -> Any:
    """The backend's own variable behind one of Keras 3; others are returned as they are."""
    keras = sys.modules.get("keras")
    if keras is not None and is_keras_3(keras) and isinstance(variable, keras.Variable):
        return variable.value
    return variable


def variables_of(optimizer: Any) -> list[Any]:
    """All variables of an optimizer: a list in Keras 3, a method of the legacy optimizers, and both in Keras 2."""
    variables = optimizer.variables
    return list(variables() if callable(variables) else variables)


def inner_optimizer(optimizer: Any) -> Any:
    """The optimizer that updates the variables: a loss scale optimizer only wraps one."""
    return getattr(optimizer, "inner_optimizer", optimizer)


def build_optimizer(optimizer: Any, model: Any) -> None:
    """Create the variables that an optimizer creates with its first step, so that all ranks have the same."""
    trainable = model.trainable_variables
    inner = inner_optimizer(optimizer)
    if hasattr(optimizer, "_create_all_weights"):  # a legacy optimizer
        optimizer._create_all_weights(trainable)
    elif not getattr(inner, "built", getattr(inner, "_built", False)):
        optimizer.build(trainable)


def read(value: Any) -> Any:
    """The current value of a variable, a tensor or a hyperparameter."""
    if isinstance(value, (int, float)):
        return value
    try:
        array = value.numpy()
    except (AttributeError, NotImplementedError):  # a graph of TensorFlow 1: only a session has the value
        from tensorflow import keras

        array = keras.backend.get_value(value)
    return np.array(array)


def learning_rate(optimizer: Any) -> float:
    """The current learning rate."""
    return float(read(optimizer.learning_rate))


def set_learning_rate(optimizer: Any, value: float) -> None:
    """Change it for later steps, even in a step that is already compiled."""
    try:
        optimizer.learning_rate = value
    except TypeError as error:
        raise ValueError(
            "the learning rate follows a LearningRateSchedule and cannot be set: create the optimizer with a number"
        ) from error


__all__ = [
    "backend_name",
    "build_optimizer",
    "inner_optimizer",
    "is_keras_3",
    "keras_of",
    "learning_rate",
    "native",
    "read",
    "set_learning_rate",
    "variables_of",
]
