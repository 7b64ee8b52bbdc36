"""Training with several ranks is training with one and the whole batch."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import horovod.jax as hvd

ROWS = 12  # of the whole batch: divisible by the numbers of ranks that are tested
STEPS = 30


def start() -> Any:
    first, second = jax.random.split(jax.random.key(3))
    return {"a": jax.random.normal(first, (6, 16)) * 0.3, "b": jax.random.normal(second, (16, 3)) * 0.3}


def batch(step: int) -> tuple[Any, Any]:
    random = np.random.default_rng(step)
    inputs = random.normal(size=(ROWS, 6)).astype(np.float32)
    return inputs, (inputs[:, :3] * inputs[:, 3:] > 0).argmax(1)


def loss(params: Any, inputs: Any, labels: Any) -> Any:
    logits = jnp.tanh(inputs @ params["a"]) @ params["b"]
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


def train(optimizer: Any, rows: slice, gradient: Any, params: Any, pieces: int = 1) -> Any:
    @jax.jit
    def step(params: Any, state: Any, inputs: Any, labels: Any) -> Any:
        updates, state = optimizer.update(gradient(params, inputs, labels), state, params)
        return optax.apply_updates(params, updates), state

    state = optimizer.init(params)
    for number in range(STEPS):
        inputs, labels = (each[rows] for each in batch(number))
        for x, y in zip(np.split(inputs, pieces), np.split(labels, pieces), strict=True):
            params, state = step(params, state, x, y)
    return params


@pytest.mark.parametrize("way", ["optimizer", "grad", "groups", "passes", "bf16"])
@pytest.mark.parametrize("name", ["sgd", "adamw"])
def test_ranks_with_parts_equal_one_with_all(way: str, name: str) -> None:
    plain = optax.sgd(0.1, momentum=0.9) if name == "sgd" else optax.adamw(0.01)
    own = slice(hvd.rank() * ROWS // hvd.size(), (hvd.rank() + 1) * ROWS // hvd.size())
    expected = train(plain, slice(0, ROWS), jax.grad(loss), start())
    params = hvd.broadcast_parameters(jax.tree.map(lambda each: each + hvd.rank(), start()))
    if way == "grad":
        result = train(plain, own, hvd.grad(loss), params)
    else:
        options: dict[str, Any] = {
            "optimizer": {},
            "groups": {"groups": 1},
            "passes": {"backward_passes_per_step": 2, "average_aggregated_gradients": True},
            "bf16": {"compression": hvd.Compression.bf16},
        }[way]
        optimizer = hvd.DistributedOptimizer(plain, **options)
        result = train(optimizer, own, jax.grad(loss), params, 2 if way == "passes" else 1)
    tolerance = 0.05 if way == "bf16" else 2e-3
    for mine, theirs in zip(jax.tree.leaves(result), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(mine, theirs, atol=tolerance)
