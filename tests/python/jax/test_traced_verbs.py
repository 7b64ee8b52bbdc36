"""The verbs in functions that JAX traces: jit, grad, vmap, control flow, and what XLA makes of them."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import horovod.jax as hvd
from horovod._generic.submission import Reduction
from horovod.common.exceptions import HorovodInternalError
from horovod.jax.verbs import reduce_named

IS_FALLBACK = os.environ.get("HOROVOD_JAX_FALLBACK") == "1"


def mine(*shape: int) -> jax.Array:
    return jnp.asarray(np.random.default_rng(hvd.rank()).normal(size=shape), jnp.float32)


VERBS: dict[str, Callable[[Any], Any]] = {
    "sum": lambda x: hvd.allreduce(x, op=hvd.Sum, prescale_factor=0.5, postscale_factor=3.0),
    "average": hvd.allreduce,
    "max": lambda x: hvd.allreduce(x, op=hvd.Max),
    "allgather": hvd.allgather,
    "broadcast": lambda x: hvd.broadcast(x, hvd.size() - 1),
    "alltoall": hvd.alltoall,
    "reducescatter": lambda x: hvd.reducescatter(x, op=hvd.Sum),
    "uneven": lambda x: hvd.reducescatter(x[:-1]),
    "tree": lambda x: hvd.allreduce({"a": x, "b": [x * 2, jnp.int32(1)]})["b"][0],
    "fp16": lambda x: hvd.allreduce(x, compression=hvd.Compression.fp16),
}


@pytest.mark.parametrize("verb", VERBS)
def test_compiled_as_not_compiled(verb: str) -> None:
    function, x = VERBS[verb], mine(hvd.size() * 2, 3)
    np.testing.assert_array_equal(jax.jit(function)(x), function(x))


@pytest.mark.parametrize("verb", VERBS)
def test_gradients_compiled_as_not_compiled(verb: str) -> None:
    x = mine(hvd.size() * 2, 3)
    gradient = jax.grad(lambda x: (VERBS[verb](x) * (hvd.rank() + 1)).sum())
    np.testing.assert_allclose(jax.jit(gradient)(x), gradient(x), rtol=1e-6)


def test_gradients_follow_the_rules_of_other_frameworks() -> None:
    n, rank = hvd.size(), hvd.rank()
    x, scale = jnp.ones((n * 2, 3)), float(rank + 1)
    mean, total = np.mean(np.arange(n) + 1.0), np.sum(np.arange(n) + 1.0)

    def gradient(function: Callable[[Any], Any]) -> Any:
        return jax.jit(jax.grad(lambda x: (function(x) * scale).sum()))(x)

    np.testing.assert_allclose(gradient(lambda x: hvd.allreduce(x, op=hvd.Sum)), total)
    np.testing.assert_allclose(gradient(hvd.allreduce), mean)
    np.testing.assert_allclose(gradient(hvd.allgather), mean)
    np.testing.assert_allclose(gradient(lambda x: hvd.broadcast(x, 0)), mean if rank == 0 else 0.0)
    sent = np.repeat(np.arange(n) + 1.0, 2)[:, None] * np.ones(3)
    np.testing.assert_allclose(gradient(hvd.alltoall), sent)
    np.testing.assert_allclose(gradient(lambda x: hvd.reducescatter(x, op=hvd.Sum)), sent * n)
    np.testing.assert_allclose(gradient(hvd.reducescatter), sent)


def test_gradient_of_rows_of_different_numbers() -> None:
    x = jnp.ones((hvd.rank() + 1, 2))
    weights = jnp.arange(sum(range(hvd.size() + 1)), dtype=jnp.float32)[:, None]
    gradient = jax.grad(lambda x: (hvd.allgather(x) * weights).sum())(x)
    first = sum(range(hvd.rank() + 1))
    np.testing.assert_allclose(gradient, np.asarray(weights)[first : first + hvd.rank() + 1] * np.ones(2))


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb != "tree"])
def test_vmap_is_the_verb_for_every_example(verb: str) -> None:
    batch, function = mine(4, hvd.size() * 2, 3), VERBS[verb]
    expected = np.stack([function(example) for example in batch])
    np.testing.assert_allclose(jax.vmap(function)(batch), expected, rtol=1e-6)
    np.testing.assert_allclose(jax.jit(jax.vmap(function, in_axes=2))(jnp.moveaxis(batch, 0, 2)), expected, rtol=1e-6)


def test_control_flow() -> None:
    x = jnp.full(3, float(hvd.rank()))
    mean = (hvd.size() - 1) / 2

    def step(carry: Any, _: Any) -> Any:
        return hvd.allreduce(carry) + 1.0, None

    np.testing.assert_allclose(jax.jit(lambda x: jax.lax.scan(step, x, None, length=5)[0])(x), mean + 5)
    loop = jax.lax.while_loop
    looped = jax.jit(lambda x: loop(lambda c: c[1] < 3, lambda c: (hvd.allreduce(c[0]), c[1] + 1), (x, 0))[0])
    np.testing.assert_allclose(looped(x), mean)
    chosen = jax.jit(lambda x: jax.lax.cond(x.sum() >= 0, hvd.allreduce, lambda x: x, x))
    np.testing.assert_allclose(chosen(x), mean)
    remembered = jax.checkpoint(lambda x: hvd.allreduce(jnp.sin(x)).sum())
    plain = jax.grad(lambda x: hvd.allreduce(jnp.sin(x)).sum())
    np.testing.assert_allclose(jax.jit(jax.grad(remembered))(x), plain(x), rtol=1e-6)
    np.testing.assert_allclose(jax.grad(lambda x: jax.lax.scan(step, x, None, length=3)[0].sum())(x), 1.0)


def test_equal_calls_are_kept_and_constants_not_folded() -> None:
    def function(x: Any) -> Any:
        hvd.allreduce(x, name="unused")  # JAX drops what is not used, on all ranks: docs/jax.md says so
        return hvd.allreduce(x) + hvd.allreduce(x), hvd.allreduce(jnp.full(2, float(hvd.rank())))

    assert "unused" not in jax.jit(function).lower(jnp.ones(2)).as_text()
    both, constant = jax.jit(function)(jnp.ones(2))
    np.testing.assert_allclose(both, 2.0)
    np.testing.assert_allclose(constant, (hvd.size() - 1) / 2)


def test_ranks_that_compile_in_different_orders() -> None:
    functions = [jax.jit(lambda x, i=i: hvd.allreduce(x * i, name=f"order.{i}", op=hvd.Sum)) for i in range(4)]
    x = jnp.ones(5)
    for i in range(4):
        functions[(i + hvd.rank()) % 4].lower(x).compile()
    for i, function in enumerate(functions):
        np.testing.assert_allclose(function(x), i * hvd.size())


def test_starts_in_another_order_on_every_rank() -> None:
    if IS_FALLBACK:
        pytest.skip("callbacks have no halves, so ranks need the same order")
    x = jnp.full(1000, float(hvd.rank() + 1))
    total = sum(range(1, hvd.size() + 1))

    def both(x: Any) -> Any:
        names = ["a", "b", "c"]
        names = names[hvd.rank() :] + names[: hvd.rank()]
        started = {name: hvd.allreduce_start(x, op=hvd.Sum, name=f"start.{name}") for name in names}
        between = jnp.sin(x)
        return [hvd.allreduce_done(each) for each in started.values()], between

    results, _ = jax.jit(both)(x)
    for result in results:
        np.testing.assert_allclose(result, total)
    gradient = jax.jit(jax.grad(lambda x: hvd.allreduce_done(hvd.allreduce_start({"x": x}, op=hvd.Sum))["x"].sum()))
    np.testing.assert_allclose(gradient(x), hvd.size())
    np.testing.assert_allclose(hvd.allreduce_done(hvd.allreduce_start(x, op=hvd.Sum)), total)
    started = jax.jit(lambda x: hvd.allreduce_start(x, op=hvd.Sum, name="border"))(x)
    np.testing.assert_allclose(jax.jit(hvd.allreduce_done)(started), total)
    with pytest.raises(ValueError, match="already finished"), hvd.raising_horovod_errors():
        jax.block_until_ready(jax.jit(hvd.allreduce_done)(started))


def test_start_names_the_alternative_to_vmap() -> None:
    if IS_FALLBACK:
        pytest.skip("callbacks have no halves")
    with pytest.raises(NotImplementedError, match=r"use hvd\.allreduce"):
        jax.vmap(lambda x: hvd.allreduce_done(hvd.allreduce_start(x)))(jnp.ones((2, 3)))


def test_donated_memory_is_reduced_in_place() -> None:
    if IS_FALLBACK:
        pytest.skip("callbacks copy")
    x = jnp.ones(100_000)
    address = x.unsafe_buffer_pointer()
    result = jax.jit(hvd.allreduce, donate_argnums=0)(x)
    assert result.unsafe_buffer_pointer() == address
    kept = jnp.ones(100_000)
    doubled = jax.jit(lambda x: hvd.allreduce(x, op=hvd.Sum))(kept)
    np.testing.assert_array_equal(kept, 1.0)
    np.testing.assert_array_equal(doubled, hvd.size())


def test_different_rows_in_a_compiled_function_are_refused() -> None:
    if hvd.size() == 1:
        pytest.skip("needs ranks that differ")
    with pytest.raises((ValueError, HorovodInternalError), match="same number of rows"), hvd.raising_horovod_errors():
        jax.block_until_ready(jax.jit(lambda x: hvd.allgather(x, name="rows"))(jnp.ones((1 + (hvd.rank() == 0), 2))))
    np.testing.assert_allclose(jax.jit(hvd.allreduce)(jnp.ones(3)), 1.0)


def test_ranks_that_disagree_are_told_in_compiled_functions() -> None:
    if hvd.size() == 1:
        pytest.skip("one rank agrees with itself")
    with pytest.raises(HorovodInternalError), hvd.raising_horovod_errors():
        jax.block_until_ready(jax.jit(lambda x: hvd.allreduce(x, name="shapes"))(jnp.ones(hvd.rank() + 1)))
    np.testing.assert_allclose(jax.jit(hvd.allreduce)(jnp.ones(3)), 1.0)


def test_alltoall_with_splits_needs_both_sides() -> None:
    splits = [1] * hvd.size()
    x = jnp.arange(hvd.size() * 1.0)
    with pytest.raises(ValueError, match="needs received_splits"):
        jax.jit(lambda x: hvd.alltoall(x, splits)[0])(x)
    result, received = jax.jit(lambda x: hvd.alltoall(x, splits, received_splits=splits))(x)
    np.testing.assert_array_equal(result, hvd.rank())
    assert received.tolist() == splits


def test_async_names_the_alternative() -> None:
    with pytest.raises(ValueError, match=r"hvd\.allreduce_start"):
        jax.jit(lambda x: hvd.allreduce_async(x))(jnp.ones(2))


@pytest.mark.usefixtures("places_are_given_back")
def test_what_depends_on_the_world_is_compiled_again() -> None:
    from every_rank import change_places

    traced = []

    @jax.jit
    def function(x: Any) -> Any:
        traced.append(hvd.rank())
        return hvd.allreduce(x) * 0 + hvd.rank(), hvd.reducescatter(jnp.arange(hvd.size() + 1.0))

    function(jnp.ones(2))
    change_places()
    placed, _ = function(jnp.ones(2))
    np.testing.assert_array_equal(placed, hvd.rank())
    assert len(traced) == (2 if hvd.size() > 1 else 1)


@pytest.mark.usefixtures("places_are_given_back")
def test_what_does_not_depend_on_the_world_stays_compiled() -> None:
    from every_rank import change_places

    hvd.shutdown()  # forget what other tests have noted
    hvd.init(process_sets="dynamic")
    jax.clear_caches()
    traced = []

    @jax.jit
    def function(x: Any) -> Any:
        traced.append(1)
        return hvd.allreduce(x, op=hvd.Sum)

    np.testing.assert_array_equal(function(jnp.ones(2)), hvd.size())
    from horovod.jax.world import compiled_for

    compiled_for._world = None
    change_places()
    np.testing.assert_array_equal(function(jnp.ones(2)), hvd.size())
    assert len(traced) == 1


def test_a_compiled_program_follows_a_process_set_to_another_number() -> None:
    sets = [hvd.add_process_set([rank]) for rank in range(hvd.size())] if hvd.size() > 1 else []
    if not sets:
        pytest.skip("needs two ranks")
    own = sets[hvd.rank()]
    function = jax.jit(lambda x: hvd.allreduce(x, op=hvd.Sum, process_set=own) + hvd.reducescatter(x, process_set=own))
    np.testing.assert_array_equal(function(jnp.arange(4.0)), 2 * np.arange(4.0))
    for each in sets:
        hvd.remove_process_set(each)
    with pytest.raises(ValueError, match="registered"):
        function(jnp.arange(4.0))
    for each in reversed(sets):  # removed numbers are given again, in the order of their removal
        hvd.add_process_set(each)
    assert hvd.size() % 2 or own.process_set_id != hvd.rank() + 1
    np.testing.assert_array_equal(function(jnp.arange(4.0)), 2 * np.arange(4.0))
    for each in sets:
        hvd.remove_process_set(each)


@pytest.mark.skipif(IS_FALLBACK, reason="callbacks work in memory of their own")
def test_a_refused_array_takes_no_memory_from_those_in_flight() -> None:
    """XLA frees the arrays of a call that returns, so it must not return before the engine has done with them."""
    if hvd.size() == 1:
        pytest.skip("needs two ranks")
    own, total = jnp.full(1000, hvd.rank() + 1.0), sum(range(1, hvd.size() + 1))
    if hvd.rank() > 0:
        had_returned = hvd.allreduce(jnp.zeros(()), op=hvd.Max, name="go")
        pending = [hvd.allreduce_async(own, op=hvd.Sum, name=f"refused.{name}") for name in "ab"]
    else:
        both = jax.jit(
            lambda a, b: reduce_named(
                [a, b], ["refused.a", "refused.b"], [1, 1], Reduction(hvd.Sum, 1.0, 1.0), hvd.global_process_set
            )
        )
        compiled = both.lower(own, own).compile()
        pending = [hvd.allreduce_async(own, op=hvd.Sum, name="refused.b")]
        returned, answers = threading.Event(), []

        def let_others_go() -> None:
            answers.append(hvd.allreduce(jnp.float32(returned.wait(1)), op=hvd.Max, name="go"))

        others = threading.Thread(target=let_others_go)
        others.start()
        with pytest.raises(Exception, match="in flight"):
            jax.block_until_ready(compiled(own, own))
        returned.set()
        others.join()
        had_returned = answers[0]
    for handle in pending:
        np.testing.assert_array_equal(hvd.synchronize(handle), total)
    assert not had_returned


@pytest.mark.usefixtures("places_are_given_back")
@pytest.mark.parametrize("what", ["compression", "local_rank"])
def test_what_reads_the_place_is_compiled_again(what: str) -> None:
    """PowerSGD divides by the number of ranks; a local rank may change while the rank stays."""
    from every_rank import change_places

    from horovod.jax.world import compiled_for

    traced = []

    @jax.jit
    def function(x: Any) -> Any:
        traced.append(1)
        if what == "local_rank":
            return x + hvd.local_rank()
        return hvd.allreduce(x, compression=hvd.Compression.powersgd(1))

    compiled_for._world = None
    function(jnp.ones((90, 80)))
    change_places()
    function(jnp.ones((90, 80)))
    assert len(traced) == (2 if hvd.size() > 1 else 1)
