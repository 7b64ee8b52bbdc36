"""Flax: SyncBatchNorm, and models of linen and nnx."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

import horovod.jax as hvd


def test_sync_batch_norm_is_batch_norm_of_the_whole_batch() -> None:
    whole = np.random.default_rng(0).normal(2.0, 3.0, (6 * hvd.size() + 1, 5, 4)).astype(np.float32)
    rows = slice(hvd.rank() * 6, (hvd.rank() + 1) * 6 + (hvd.rank() == hvd.size() - 1))
    weights = np.random.default_rng(1).normal(size=whole.shape).astype(np.float32)
    plain, ours = nn.BatchNorm(use_running_average=False), hvd.SyncBatchNorm(use_running_average=False)
    variables = plain.init(jax.random.key(0), whole)
    own = ours.init(jax.random.key(0), whole[rows])
    assert jax.tree.structure(own) == jax.tree.structure(variables)

    def loss(module: Any, x: Any, w: Any) -> Any:
        y, changed = module.apply(variables, x, mutable=["batch_stats"])
        return (y * w).sum(), (y, changed)

    gradient = jax.grad(loss, argnums=1, has_aux=True)
    expected, (y, stats) = gradient(plain, whole, weights)
    found, (mine, own_stats) = jax.jit(lambda x, w: gradient(ours, x, w))(whole[rows], weights[rows])
    np.testing.assert_allclose(mine, y[rows], atol=2e-5)
    np.testing.assert_allclose(found, expected[rows], atol=2e-5)
    for a, b in zip(jax.tree.leaves(own_stats), jax.tree.leaves(stats), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_models_of_nnx() -> None:
    model = nnx.Linear(3, 2, rngs=nnx.Rngs(hvd.rank()))
    nnx.update(model, hvd.broadcast_parameters(nnx.state(model)))
    weights = hvd.allgather(model.kernel[...][None])
    np.testing.assert_array_equal(weights, np.repeat(weights[:1], hvd.size(), 0))
    graph, params = nnx.split(model, nnx.Param)[:2]
    optimizer = hvd.DistributedOptimizer(optax.sgd(1.0))

    @jax.jit
    def step(params: Any, state: Any, x: Any) -> Any:
        gradients = jax.grad(lambda p: nnx.merge(graph, p)(x).sum())(params)
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates), state

    x = jnp.full((1, 3), float(hvd.rank()))
    trained, _ = step(params, optimizer.init(params), x)
    np.testing.assert_allclose(trained["kernel"][...], weights[0] - (hvd.size() - 1) / 2, rtol=1e-5)
