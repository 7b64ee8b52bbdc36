"""Small models and data for the Keras that tf.keras is: Keras 3, or tf_keras with TF_USE_LEGACY_KERAS=1."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

import horovod.numpy as hvn
import horovod.tensorflow.keras as hvd
from horovod._keras.variables import is_keras_3

keras = tf.keras
KERAS_3 = is_keras_3(keras)
ROWS = 4  # of a batch on one rank

layers, optimizers = keras.layers, keras.optimizers


def make_model(seed: int = 1, width: int = 5) -> Any:
    """The same on all ranks for the same seed."""
    keras.utils.set_random_seed(seed)
    return keras.Sequential([layers.Input((3,)), layers.Dense(width, activation="tanh"), layers.Dense(1)])


def data(batches: int, rank: int) -> tuple[np.ndarray, np.ndarray]:
    """What a rank trains with."""
    random = np.random.default_rng(100 + rank)
    inputs = random.standard_normal((batches * ROWS, 3)).astype(np.float32)
    return inputs, inputs.sum(axis=1, keepdims=True) ** 2


def all_data(batches: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """What all ranks train with: each batch holds those of all ranks."""
    parts = [data(batches, rank) for rank in range(size)]
    inputs, targets = (
        np.concatenate([each[part].reshape(batches, ROWS, -1) for each in parts], axis=1) for part in (0, 1)
    )
    return inputs.reshape(-1, 3), targets.reshape(-1, 1)


def fit(model: Any, optimizer: Any, batches: int = 4, epochs: int = 2, **compiled: Any) -> Any:
    """Train on this rank's data."""
    model.compile(optimizer=optimizer, loss="mse", **compiled)
    return model.fit(*data(batches, hvd.rank()), batch_size=ROWS, epochs=epochs, shuffle=False, verbose=0)


def fit_alone(model: Any, optimizer: Any, batches: int = 4, epochs: int = 2, **compiled: Any) -> Any:
    """Train on the data of all ranks, without communication."""
    model.compile(optimizer=optimizer, loss="mse", **compiled)
    inputs, targets = all_data(batches, hvd.size())
    return model.fit(inputs, targets, batch_size=ROWS * hvd.size(), epochs=epochs, shuffle=False, verbose=0)


@functools.cache
def trained_alone(make_optimizer: Callable[[], Any], **options: Any) -> list[np.ndarray]:
    """The weights that one process gets with the batches of all ranks."""
    model = make_model()
    fit_alone(model, make_optimizer(), **options)
    return list(model.get_weights())


def assert_close(left: list[np.ndarray], right: list[np.ndarray]) -> None:
    for one, other in zip(left, right, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-4, atol=2e-5)


def assert_same_on_all_ranks(values: list[np.ndarray]) -> None:
    mine = np.concatenate([np.asarray(each, np.float64).ravel() for each in values])
    gathered = hvn.allgather(mine[None])
    assert all(np.array_equal(each, gathered[0]) for each in gathered)
