"""What the suites about gradients share: ways to run a step, and data that differ per rank."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

import horovod.tensorflow as hvd

Way = Callable[[Callable[..., Any]], Callable[..., Any]]
WAYS: dict[str, Way] = {"eager": lambda step: step, "function": tf.function}


def mean_of_ranks(value: Callable[[int], Any]) -> Any:
    """The average of what each rank has."""
    return sum(value(rank) for rank in range(hvd.size())) / hvd.size()


def rows_of_rank(data: np.ndarray) -> np.ndarray:
    """This rank's part of a batch that can be divided evenly."""
    count = len(data) // hvd.size()
    return data[hvd.rank() * count : (hvd.rank() + 1) * count]


def whole_batch(rows_per_rank: int = 4, columns: int = 6) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and wanted outputs of all ranks together."""
    random = np.random.default_rng(1)
    rows = rows_per_rank * hvd.size()
    return (
        random.standard_normal((rows, columns)).astype(np.float32),
        random.standard_normal((rows, 2)).astype(np.float32),
    )


class Network:
    """Two layers of plain variables, equal on all ranks."""

    def __init__(self, columns: int = 6) -> None:
        random = np.random.default_rng(2)

        def made(*shape: int) -> tf.Variable:
            return tf.Variable(random.standard_normal(shape).astype(np.float32) * 0.5)

        self.variables = [made(columns, 5), made(5), made(5, 2), made(2)]

    def loss(self, inputs: Any, wanted: Any) -> Any:
        first, first_bias, second, second_bias = self.variables
        hidden = tf.tanh(tf.matmul(inputs, first) + first_bias)
        return tf.reduce_mean((tf.matmul(hidden, second) + second_bias - wanted) ** 2)
