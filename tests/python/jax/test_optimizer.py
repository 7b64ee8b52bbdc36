"""DistributedOptimizer and gradients: what is reduced, when, and how arguments are checked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import horovod.jax as hvd
from horovod.jax.reducing_compression import Int8Compressor, PowerSGDCompressor, TopKCompressor

PARAMS = {"w": jnp.ones((3, 2)), "b": jnp.zeros(2)}


def own_gradients() -> Any:
    return jax.tree.map(lambda each: jnp.full_like(each, hvd.rank() + 1.0), PARAMS)


def mean() -> float:
    return (hvd.size() + 1) / 2


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"groups": 2},
        {"groups": [["['b']", "['w']"]]},
        {"gradient_predivide_factor": 4.0},
        {"compression": hvd.Compression.bf16},
    ],
    ids=str,
)
def test_updates_are_those_of_the_average(options: dict[str, Any], jit: bool) -> None:
    optimizer = hvd.DistributedOptimizer(optax.sgd(1.0), **options)
    state = optimizer.init(PARAMS)
    update = jax.jit(optimizer.update) if jit else optimizer.update
    updates, state = update(own_gradients(), state, PARAMS)
    for each in jax.tree.leaves(updates):
        np.testing.assert_allclose(each, -mean(), rtol=1e-6)


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("average", [False, True])
def test_passes_are_summed_up(jit: bool, average: bool) -> None:
    optimizer = hvd.DistributedOptimizer(
        optax.sgd(1.0), backward_passes_per_step=3, average_aggregated_gradients=average
    )
    update = jax.jit(optimizer.update) if jit else optimizer.update
    state = optimizer.init(PARAMS)
    for step in range(6):
        updates, state = update(own_gradients(), state, PARAMS)
        expected = 0.0 if step % 3 < 2 else -mean() * (1 if average else 3)
        for each in jax.tree.leaves(updates):
            np.testing.assert_allclose(each, expected, rtol=1e-6)


def test_sum_and_names_of_leaves() -> None:
    gradients = hvd.grad(lambda p: (p["w"] * (hvd.rank() + 1)).sum(), op=hvd.Sum)(PARAMS)
    np.testing.assert_allclose(gradients["w"], sum(range(1, hvd.size() + 1)))
    value, gradients = jax.jit(hvd.value_and_grad(lambda p: (p["w"] * (hvd.rank() + 1)).sum()))(PARAMS)
    np.testing.assert_allclose(value, 6 * (hvd.rank() + 1))
    np.testing.assert_allclose(gradients["w"], mean())
    gradients, aux = hvd.grad(lambda p: (p["w"].sum(), "aux"), has_aux=True)(PARAMS)
    assert aux == "aux"


def test_adasum_combines_updates() -> None:
    if hvd.size() & (hvd.size() - 1):
        pytest.skip("Adasum needs a power of two")
    optimizer = hvd.DistributedOptimizer(optax.adam(0.1), op=hvd.Adasum)
    updates, _ = jax.jit(optimizer.update)(own_gradients(), optimizer.init(PARAMS), PARAMS)
    np.testing.assert_allclose(updates["w"], -0.1, rtol=1e-3)  # equal updates: their average


def test_equinox_style_pytrees_have_leaves_that_are_no_gradients() -> None:
    gradients = {"w": jnp.full(3, hvd.rank() + 1.0), "activation": None}
    updates, _ = hvd.DistributedOptimizer(optax.identity()).update(gradients, hvd_state(gradients))
    np.testing.assert_allclose(updates["w"], mean())
    assert updates["activation"] is None


def hvd_state(gradients: Any) -> Any:
    return hvd.DistributedOptimizer(optax.identity()).init(gradients)


def test_ranks_outside_of_the_set_train_alone() -> None:
    ours = hvd.add_process_set([0])
    optimizer = hvd.DistributedOptimizer(optax.sgd(1.0), process_set=ours)
    updates, _ = optimizer.update(own_gradients(), optimizer.init(PARAMS), PARAMS)
    np.testing.assert_allclose(updates["b"], -(hvd.rank() + 1.0))
    hvd.remove_process_set(ours)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"backward_passes_per_step": 0}, "1 or more"),
        ({"gradient_predivide_factor": 2.0, "op": hvd.Sum}, r"needs op=hvd\.Average"),
        ({"groups": 0}, "positive number"),
        ({"groups": 2, "compression": Int8Compressor()}, "does its own exchange"),
    ],
)
def test_bad_arguments(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        hvd.DistributedOptimizer(optax.sgd(1.0), **options)
    with pytest.raises(ValueError, match="no leaf is called 'x'"):
        hvd.DistributedOptimizer(optax.sgd(1.0), groups=[["x"]]).update(own_gradients(), hvd_state(PARAMS), PARAMS)


@pytest.mark.parametrize("compression", [Int8Compressor(), TopKCompressor(0.5), PowerSGDCompressor(4)], ids=repr)
def test_what_compression_loses_comes_later(compression: Any) -> None:
    """The sum of many reductions is that of the exact ones, up to the last error."""
    params = {"w": jnp.zeros((80, 90)), "small": jnp.zeros(7)}
    random = np.random.default_rng(hvd.rank())
    own = {"w": jnp.asarray(random.normal(size=(80, 90)), jnp.float32), "small": jnp.ones(7)}
    exact = hvd.allreduce(own)
    optimizer = hvd.DistributedOptimizer(optax.identity(), compression=compression)
    state, update = optimizer.init(params), jax.jit(optimizer.update)
    total = jnp.zeros((80, 90))
    steps = 40
    for _ in range(steps):
        updates, state = update(own, state)
        total += updates["w"]
        np.testing.assert_array_equal(updates["small"], 1.0)
    everyones = hvd.allgather(updates["w"][None])
    np.testing.assert_array_equal(everyones, np.repeat(everyones[:1], hvd.size(), 0))
    distance = np.linalg.norm(total / steps - exact["w"]) / np.linalg.norm(exact["w"])
    assert distance < (0.6 if isinstance(compression, PowerSGDCompressor) else 0.1)


@pytest.fixture
def alone(places_are_given_back: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """Leaves the world, for one in which this rank is alone."""

    def leave() -> None:
        hvd.shutdown()
        for name in ("RANK", "LOCAL_RANK", "CROSS_RANK"):
            monkeypatch.setenv(f"HOROVOD_{name}", "0")
        for name in ("SIZE", "LOCAL_SIZE", "CROSS_SIZE"):
            monkeypatch.setenv(f"HOROVOD_{name}", "1")
        hvd.init(process_sets="dynamic")

    yield leave
    monkeypatch.undo()


@pytest.mark.parametrize("compression", [hvd.Compression.none, PowerSGDCompressor(rank=2)], ids=["none", "powersgd"])
def test_a_compiled_update_is_right_in_a_world_of_another_size(
    compression: Any, alone: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    params = {"w": jnp.ones((128, 64))}
    optimizer = hvd.DistributedOptimizer(optax.sgd(1.0), compression=compression)
    update, own, expected = jax.jit(optimizer.update), hvd.rank() + 1.0, mean()
    gradients = jax.tree.map(lambda each: jnp.full_like(each, own), params)
    state = optimizer.init(params)

    def check(average: float) -> None:
        updates, _ = update(gradients, state, params)
        np.testing.assert_allclose(updates["w"], -average, rtol=1e-4)

    check(expected)
    hvd.barrier()
    alone()
    check(own)
    monkeypatch.undo()
    hvd.shutdown()
    hvd.init(process_sets="dynamic")
    check(expected)


def test_updates_may_have_other_types_than_gradients() -> None:
    """Passes whose updates are zero have those of the last pass: `cond` requires one type."""
    widened = optax.stateless(lambda updates, _: jax.tree.map(lambda each: each.astype(jnp.float32), updates))
    optimizer = hvd.DistributedOptimizer(widened, backward_passes_per_step=2)
    params = {"w": jnp.zeros(3, jnp.bfloat16)}
    state, update = optimizer.init(params), jax.jit(optimizer.update)
    for expected in (0.0, 2 * mean()):
        updates, state = update({"w": jnp.full(3, hvd.rank() + 1.0, jnp.bfloat16)}, state)
        assert updates["w"].dtype == jnp.float32
        np.testing.assert_array_equal(updates["w"], expected)
