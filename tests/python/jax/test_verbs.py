"""The verbs outside of traced functions: results, types, pytrees, handles and errors."""

from __future__ import annotations

import random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import horovod.jax as hvd
from horovod.common.exceptions import HorovodInternalError

TYPES = [jnp.float32, jnp.float16, jnp.bfloat16, jnp.int32, jnp.int8, jnp.uint8, jnp.complex64]


def everyones(make: Any) -> list[Any]:
    return [np.asarray(make(rank)) for rank in range(hvd.size())]


@pytest.mark.parametrize("dtype", TYPES, ids=lambda each: each.__name__)
def test_sum_of_every_type(dtype: Any) -> None:
    def mine(rank: int) -> jax.Array:
        return (jnp.arange(60).reshape(3, 4, 5) % 7 + rank).astype(dtype)

    result = hvd.allreduce(mine(hvd.rank()), op=hvd.Sum)
    assert result.dtype == dtype and result.shape == (3, 4, 5)
    np.testing.assert_array_equal(result, sum(everyones(mine)))


@pytest.mark.parametrize(
    ("op", "reduce"), [(hvd.Min, np.minimum), (hvd.Max, np.maximum), (hvd.Product, np.multiply), (hvd.Average, None)]
)
def test_every_reduction(op: int, reduce: Any) -> None:
    def mine(rank: int) -> jax.Array:
        return jnp.asarray(np.random.default_rng(rank).uniform(1, 2, 17), jnp.float32)

    parts = everyones(mine)
    expected = np.mean(parts, axis=0) if reduce is None else reduce.reduce(parts)
    np.testing.assert_allclose(hvd.allreduce(mine(hvd.rank()), op=op), expected, rtol=1e-6)


def test_factors_apply_before_and_after() -> None:
    result = hvd.allreduce(jnp.full(3, 2.0), op=hvd.Sum, prescale_factor=0.5, postscale_factor=10.0)
    np.testing.assert_allclose(result, 10.0 * hvd.size())


def test_unsigned_sums_wrap_as_in_jax() -> None:
    near_the_end = jnp.full(4, 2**32 - 1, jnp.uint32)
    expected = jnp.zeros(4, jnp.uint32)
    for _ in range(hvd.size()):
        expected += near_the_end
    np.testing.assert_array_equal(hvd.allreduce(near_the_end, op=hvd.Sum), expected)
    with pytest.raises(ValueError, match=r"uint32 supports only op=hvd.Sum and hvd.Product"):
        hvd.allreduce(near_the_end)


def test_a_pytree_is_one_operation() -> None:
    tree = {"w": jnp.ones((2, 3)) * hvd.rank(), "b": [jnp.int32(hvd.rank()), jnp.zeros(0)], "n": None}
    result = hvd.allreduce(tree, op=hvd.Sum)
    total = sum(range(hvd.size()))
    assert jax.tree.structure(result) == jax.tree.structure(tree)
    np.testing.assert_array_equal(result["w"], np.full((2, 3), total))
    assert result["b"][0] == total and result["b"][0].dtype == jnp.int32 and result["b"][1].shape == (0,)


def test_gathers_different_numbers_of_rows() -> None:
    def mine(rank: int) -> np.ndarray[Any, Any]:
        return np.full((rank, 2), rank, np.float32)

    np.testing.assert_array_equal(hvd.allgather(jnp.asarray(mine(hvd.rank()))), np.concatenate(everyones(mine)))


def test_alltoall_with_splits_says_what_came() -> None:
    splits = [hvd.rank() + 1] * hvd.size()
    rows = jnp.repeat(jnp.arange(hvd.size()), hvd.rank() + 1) + 100 * hvd.rank()
    result, received = hvd.alltoall(rows, splits)
    expected = [hvd.rank() + 100 * rank for rank in range(hvd.size()) for _ in range(rank + 1)]
    np.testing.assert_array_equal(result, expected)
    np.testing.assert_array_equal(received, np.arange(hvd.size()) + 1)


def test_reducescatter_gives_the_first_ranks_more() -> None:
    rows = hvd.size() * 2 + 1
    result = hvd.reducescatter(jnp.arange(float(rows)), op=hvd.Sum)
    first = hvd.rank() * 2 + min(hvd.rank(), 1)
    np.testing.assert_array_equal(result, np.arange(rows)[first : first + 2 + (hvd.rank() < 1)] * hvd.size())


@pytest.mark.parametrize("dtype", [jnp.float8_e4m3fn, jnp.float8_e5m2, jnp.uint32, jnp.bool_])
def test_moves_what_it_cannot_reduce(dtype: Any) -> None:
    mine = jnp.asarray([hvd.rank(), 1, 0]).astype(dtype)
    assert hvd.broadcast(mine, hvd.size() - 1).dtype == dtype
    np.testing.assert_array_equal(
        hvd.broadcast(mine, hvd.size() - 1).astype(jnp.float32), jnp.asarray([hvd.size() - 1, 1, 0]).astype(dtype)
    )
    assert hvd.allgather(mine).shape == (3 * hvd.size(),)


def test_random_keys_travel() -> None:
    key = hvd.broadcast(jax.random.key(hvd.rank()), hvd.size() - 1)
    assert jax.random.key_data(key).tolist() == jax.random.key_data(jax.random.key(hvd.size() - 1)).tolist()
    own = hvd.allgather_object(jax.random.key_data(hvd.fold_in_rank(key)).tolist())
    assert len({tuple(each) for each in own}) == hvd.size()


@pytest.mark.parametrize(
    ("dtype", "words"),
    [(jnp.int4, "less than a byte cannot be sent; cast them to int8"), (jnp.float8_e5m2, "does not hold sums")],
)
def test_says_why_a_type_is_refused(dtype: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        hvd.allreduce(jnp.ones(4).astype(dtype))


def test_handles_in_another_order_on_every_rank() -> None:
    count = 500
    order = list(range(count))
    random.Random(f"seed {hvd.rank()}").shuffle(order)
    started = {i: hvd.allreduce_async(jnp.full(i % 7, float(i)), name=f"many.{i}", op=hvd.Sum) for i in order}
    for i, handle in started.items():
        np.testing.assert_array_equal(hvd.synchronize(handle), np.full(i % 7, float(i * hvd.size())))
    assert hvd.synchronize(started[0]) is None


def test_async_verbs_of_pytrees() -> None:
    tree = {"a": jnp.ones(2), "b": jnp.ones((2, 2))}
    started = [
        hvd.broadcast_async(tree, 0, name="tree"),
        hvd.allgather_async(tree, name="tree"),
        hvd.reducescatter_async({"a": jnp.ones(hvd.size())}, name="tree", op=hvd.Sum),
        hvd.grouped_allreduce_async([jnp.ones(2), jnp.ones(3)], name="tree", op=hvd.Sum),
    ]
    copied, gathered, scattered, reduced = map(hvd.synchronize, started)
    assert copied["b"].shape == (2, 2) and gathered["b"].shape == (2 * hvd.size(), 2)
    assert scattered["a"].tolist() == [hvd.size()] and isinstance(reduced, list)
    output, received = hvd.synchronize(hvd.alltoall_async(jnp.arange(hvd.size()), name="even"))
    assert output.tolist() == [hvd.rank()] * hvd.size() and received.tolist() == [1] * hvd.size()


def test_ranks_that_disagree_are_told() -> None:
    if hvd.size() == 1:
        pytest.skip("one rank agrees with itself")
    with pytest.raises(HorovodInternalError):
        hvd.allreduce(jnp.ones(hvd.rank() + 1), name="disagree")
    with pytest.raises(HorovodInternalError):
        jax.block_until_ready(hvd.broadcast(jnp.ones(2), hvd.rank(), name="roots"))
    np.testing.assert_array_equal(hvd.allreduce(jnp.ones(2), name="disagree"), 1.0)


def test_bad_arguments() -> None:
    with pytest.raises(ValueError, match="at least one array"):
        hvd.allreduce([])
    with pytest.raises(ValueError, match=r"only op=hvd.Average and op=hvd.Sum"):
        hvd.reducescatter(jnp.ones(4), op=hvd.Max)
    with pytest.raises(TypeError, match="is a str"):
        hvd.allreduce(jnp.ones(2), name=3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="either op or average"):
        hvd.allreduce(jnp.ones(2), average=True, op=hvd.Sum)


def test_process_sets() -> None:
    ours = hvd.add_process_set([hvd.size() - 1])
    if ours.included():
        np.testing.assert_array_equal(hvd.allreduce(jnp.ones(2), op=hvd.Sum, process_set=ours), 1.0)
        summed = jax.jit(lambda x: hvd.allreduce(x, op=hvd.Sum, process_set=ours))(jnp.ones(2))
        np.testing.assert_array_equal(summed, 1.0)
    else:
        with pytest.raises(ValueError):
            hvd.allreduce(jnp.ones(2), process_set=ours, name="outsider")
    hvd.barrier()
    hvd.remove_process_set(ours)


@pytest.mark.usefixtures("numbered_anew")
def test_join_fills_in_zeros() -> None:
    for _ in range(hvd.rank() + 1):
        hvd.allreduce(jnp.ones(3), op=hvd.Sum, name="uneven")
    assert hvd.join() == hvd.size() - 1


def test_parameters_of_any_library() -> None:
    tree = {"w": jnp.full(3, float(hvd.rank())), "f": jax.nn.relu, "n": hvd.rank(), "k": jax.random.key(hvd.rank())}
    result = hvd.broadcast_parameters(tree, root_rank=hvd.size() - 1)
    assert result["f"] is jax.nn.relu and result["n"] == hvd.size() - 1
    np.testing.assert_array_equal(result["w"], hvd.size() - 1.0)


def test_compression_casts() -> None:
    for compression in (hvd.Compression.fp16, hvd.Compression.bf16):
        result = hvd.allreduce({"a": jnp.full(4, 1.5), "i": jnp.int32(3)}, compression=compression, op=hvd.Max)
        assert result["a"].dtype == jnp.float32 and result["i"] == 3
        np.testing.assert_array_equal(result["a"], 1.5)
