"""ShardedOptimizer: the same steps as with a whole state, and what becomes of the pieces."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import horovod.jax as hvd

PARAMS = {
    "w": jnp.arange(35.0).reshape(5, 7) / 10,
    "b": [jnp.ones(3), jnp.float32(2.0), jnp.zeros((0, 2))],
    "half": jnp.ones((3, 2), jnp.bfloat16),
    "none": None,
}
OPTIMIZERS = {
    "sgd": optax.sgd(0.1, momentum=0.9),
    "adamw": optax.adamw(0.05, weight_decay=0.1),
    "schedule": optax.adam(optax.linear_schedule(0.1, 0.0, 10)),
}


def gradients(step: int, rank: int) -> Any:
    chance = np.random.default_rng([step, rank])
    return jax.tree.map(lambda each: jnp.asarray(chance.integers(-4, 5, each.shape), each.dtype), PARAMS)


def mean(step: int) -> Any:
    everyones = [gradients(step, rank) for rank in range(hvd.size())]
    return jax.tree.map(lambda *each: sum(x.astype(jnp.float32) for x in each) / hvd.size(), *everyones)


def same(found: Any, expected: Any) -> None:
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        tolerance = 3e-2 if one.dtype == jnp.bfloat16 else 1e-5
        np.testing.assert_allclose(one.astype(jnp.float32), other.astype(jnp.float32), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps_are_those_of_the_plain_optimizer(name: str, jit: bool) -> None:
    plain, sharded = OPTIMIZERS[name], hvd.ShardedOptimizer(OPTIMIZERS[name])
    update = jax.jit(sharded.update) if jit else sharded.update
    params, expected = PARAMS, PARAMS
    state, whole = sharded.init(params), plain.init(params)
    for step in range(4):
        updates, state = update(gradients(step, hvd.rank()), state, params)
        params = optax.apply_updates(params, updates)
        average = jax.tree.map(lambda each, like: each.astype(like.dtype), mean(step), PARAMS)
        updates, whole = plain.update(average, whole, expected)
        expected = optax.apply_updates(expected, updates)
    same(params, expected)


def test_the_state_is_divided_and_can_be_put_together() -> None:
    sharded = hvd.ShardedOptimizer(optax.adam(0.1))
    state = sharded.init(PARAMS)
    sizes = {str(each.dtype): each.size for each in jax.tree.leaves(state.inner[0].mu)}
    assert sizes == {"float32": -(-39 // hvd.size()), "bfloat16": -(-6 // hvd.size())}
    _, state = jax.jit(sharded.update)(gradients(0, hvd.rank()), state, PARAMS)
    whole = hvd.gather_sharded_state(state)
    flat = np.concatenate([np.ravel(each) for each in jax.tree.leaves(mean(0)) if each.size not in (6,)])
    np.testing.assert_allclose(np.sort(whole.inner[0].mu["float32"]), np.sort(0.1 * flat), rtol=1e-5)
    again = hvd.scatter_sharded_state(whole)
    assert jax.tree.structure(again) == jax.tree.structure(state)
    for one, other in zip(jax.tree.leaves(again), jax.tree.leaves(state), strict=True):
        np.testing.assert_array_equal(one.astype(jnp.float32), other.astype(jnp.float32))


def test_norms_are_those_of_all_pieces() -> None:
    sharded = hvd.ShardedOptimizer(optax.sgd(1.0), max_norm=0.5)
    params = {"w": PARAMS["w"], "b": jnp.ones(3)}
    own = {name: gradients(1, hvd.rank())["w" if name == "w" else "b"] for name in params}
    own["b"] = own["b"][0]
    updates, _ = jax.jit(sharded.update)(own, sharded.init(params), params)
    average = hvd.allreduce(own)
    clipped = optax.clip_by_global_norm(0.5)
    expected, _ = clipped.update(average, clipped.init(average))
    same(updates, jax.tree.map(jnp.negative, expected))


@pytest.mark.usefixtures("places_are_given_back")
def test_a_piece_does_not_fit_another_place() -> None:
    from every_rank import change_places

    sharded = hvd.ShardedOptimizer(optax.sgd(1.0, momentum=0.9))
    update = jax.jit(sharded.update)
    params = {"w": jnp.arange(10.0)}
    own = {"w": jnp.arange(10.0) + hvd.rank()}
    _, state = update(own, sharded.init(params), params)
    whole = hvd.gather_sharded_state(state)
    change_places()
    if hvd.size() > 1:
        with pytest.raises(ValueError, match=r"hvd\.scatter_sharded_state"):
            update(own, state, params)
    _, state = update(own, hvd.scatter_sharded_state(whole), params)
    momentum = hvd.gather_sharded_state(state).inner[0].trace["float32"]
    np.testing.assert_allclose(momentum, 1.9 * (np.arange(10.0) + (hvd.size() - 1) / 2), rtol=1e-6)


def test_pieces_are_not_taken_for_what_all_have() -> None:
    sharded = hvd.ShardedOptimizer(optax.adam(0.1))
    state = sharded.init(PARAMS)
    with pytest.raises(ValueError, match="gather_sharded_state"):
        hvd.broadcast_parameters({"opt": state})
    with pytest.raises(ValueError, match="gather_sharded_state"):
        hvd.elastic.JaxState(opt=state)
    with pytest.raises(ValueError, match="scatter_sharded_state"):
        sharded.update(PARAMS, hvd.gather_sharded_state(state), PARAMS)
    with pytest.raises(ValueError, match=r"hvd\.Average or hvd\.Sum"):
        hvd.ShardedOptimizer(optax.sgd(1.0), op=hvd.Max)
