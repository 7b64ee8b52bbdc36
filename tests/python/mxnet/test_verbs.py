"""The values of all verbs, for all types."""

from __future__ import annotations

import inspect
import random
from typing import Any

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon
from mxnet.ndarray import NDArray

import horovod.mxnet as hvd

DTYPES = ["uint8", "int8", "int32", "int64", "float16", "float32", "float64"]
OPS = {hvd.Sum: np.add, hvd.Min: np.minimum, hvd.Max: np.maximum, hvd.Product: np.multiply}
# fmt: off
UPSTREAM = [
    "init", "shutdown", "is_initialized", "start_timeline", "stop_timeline", "rank", "size", "local_rank",
    "local_size", "cross_rank", "cross_size", "mpi_threads_supported", "mpi_enabled", "mpi_built", "gloo_enabled",
    "gloo_built", "nccl_built", "ddl_built", "ccl_built", "cuda_built", "rocm_built", "ProcessSet",
    "global_process_set", "add_process_set", "remove_process_set", "Average", "Sum", "Adasum", "Min", "Max",
    "Product", "Compression", "allreduce", "allreduce_", "grouped_allreduce", "grouped_allreduce_", "allgather",
    "grouped_allgather", "broadcast", "broadcast_", "alltoall", "reducescatter", "grouped_reducescatter",
    "broadcast_object", "allgather_object", "broadcast_parameters", "DistributedOptimizer", "DistributedTrainer",
]
# fmt: on


def values(rank: int, shape: tuple[int, ...], dtype: str, seed: int = 0) -> Any:
    """Small integers: sums of them are exact in every type."""
    return np.random.default_rng([seed, rank]).integers(1, 4, shape).astype(dtype)


def of_all(shape: tuple[int, ...], dtype: str, seed: int = 0) -> list[Any]:
    return [values(rank, shape, dtype, seed) for rank in range(hvd.size())]


def mine(shape: tuple[int, ...], dtype: str, seed: int = 0) -> NDArray:
    return mx.nd.array(values(hvd.rank(), shape, dtype, seed), dtype=dtype)


def check(result: NDArray, expected: Any) -> None:
    assert result.dtype == expected.dtype and result.shape == expected.shape
    np.testing.assert_array_equal(result.asnumpy(), expected)


def test_all_names_of_upstream_are_there() -> None:
    assert len(UPSTREAM) == 48
    assert not [name for name in UPSTREAM if not hasattr(hvd, name)]
    arguments = {verb: list(inspect.signature(getattr(hvd, verb)).parameters) for verb in UPSTREAM[-16:]}
    scaled = ["prescale_factor", "postscale_factor"]
    assert arguments["allreduce_"] == ["tensor", "average", "name", "priority", *scaled, "process_set", "op"]
    assert arguments["reducescatter"] == ["tensor", "op", "name", "priority", "process_set", *scaled]
    assert arguments["broadcast"] == ["tensor", "root_rank", "name", "priority", "process_set"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", list(OPS))
def test_allreduce(op: int, dtype: str) -> None:
    expected = OPS[op].reduce(of_all((5, 3), dtype)).astype(dtype)
    before = mine((5, 3), dtype)
    check(hvd.allreduce(before, op=op), expected)
    check(before, values(hvd.rank(), (5, 3), dtype))
    assert hvd.allreduce_(before, op=op) is before
    check(before, expected)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_averages_and_factors(dtype: str) -> None:
    mean = (np.add.reduce(of_all((4,), dtype)) / hvd.size()).astype(dtype)
    np.testing.assert_allclose(hvd.allreduce(mine((4,), dtype)).asnumpy(), mean, rtol=1e-3)
    scaled = hvd.allreduce(mine((4,), dtype), op=hvd.Sum, prescale_factor=0.5, postscale_factor=4.0)
    check(scaled, (np.add.reduce(of_all((4,), dtype)) * 2).astype(dtype))
    with pytest.warns(DeprecationWarning, match="average is deprecated"):
        check(hvd.allreduce(mine((4,), dtype), average=False), np.add.reduce(of_all((4,), dtype)))


@pytest.mark.parametrize("dtype", DTYPES)
def test_moving_verbs(dtype: str) -> None:
    rank, size = hvd.rank(), hvd.size()
    rows = [values(each, (each + 1, 2), dtype) for each in range(size)]
    check(hvd.allgather(mine((rank + 1, 2), dtype)), np.concatenate(rows))
    check(hvd.broadcast(mine((3, 2), dtype), size - 1), values(size - 1, (3, 2), dtype))
    array = mine((3,), dtype)
    assert hvd.broadcast_(array, 0) is array
    check(array, values(0, (3,), dtype))
    splits = list(range(1, size + 1))  # row r + 1 times to rank r
    everything = of_all((sum(splits), 2), dtype)
    start = sum(splits[:rank])
    expected = np.concatenate([each[start : start + rank + 1] for each in everything])
    for given in (splits, mx.nd.array(splits, dtype="int32")):
        output, received = hvd.alltoall(mine((sum(splits), 2), dtype), given)
        check(output, expected)
        check(received, np.full(size, rank + 1, np.int32))
    even = hvd.alltoall(mine((2 * size,), dtype))
    check(even, np.concatenate([each[2 * rank : 2 * rank + 2] for each in of_all((2 * size,), dtype)]))


@pytest.mark.parametrize("dtype", DTYPES)
def test_reducescatter(dtype: str) -> None:
    rank, size = hvd.rank(), hvd.size()
    whole = np.add.reduce(of_all((2 * size + 1, 2), dtype)).astype(dtype)
    start = 2 * rank + min(rank, 1)
    expected = whole[start : start + 2 + (rank == 0)]
    check(hvd.reducescatter(mine((2 * size + 1, 2), dtype), hvd.Sum), expected)
    one, other = hvd.grouped_reducescatter([mine((2 * size + 1, 2), dtype), mine((1,), dtype, 1)], op=hvd.Sum)
    check(one, expected)
    check(other, np.add.reduce(of_all((1,), dtype, 1)).astype(dtype)[: rank == 0])


def test_groups() -> None:
    seeds = range(5)
    arrays = [mine((3, seed + 1), "float32", seed) for seed in seeds]
    expected = [np.add.reduce(of_all((3, seed + 1), "float32", seed)) for seed in seeds]
    for result, each in zip(hvd.grouped_allreduce(arrays, op=hvd.Sum, name="group"), expected, strict=True):
        check(result, each)
    assert hvd.grouped_allreduce_(arrays, op=hvd.Sum) is arrays
    for result, each in zip(arrays, expected, strict=True):
        check(result, each)
    gathered = hvd.grouped_allgather([mine((2, 3), "int32", seed) for seed in seeds])
    for seed, result in zip(seeds, gathered, strict=True):
        check(result, np.concatenate(of_all((2, 3), "int32", seed)))
    assert hvd.grouped_allreduce([]) == []


def test_parts_of_one_array_can_be_a_group() -> None:
    array = mine((4, 2), "float32")
    hvd.grouped_allreduce_([array[0:2], array[2:4]], op=hvd.Sum)
    check(array, np.add.reduce(of_all((4, 2), "float32")))
    gathered = hvd.grouped_allgather([array[0:1], array[0:1]])
    check(gathered[0], gathered[1].asnumpy())


def test_no_elements_and_no_dimensions() -> None:
    nothing = mx.nd.array(np.zeros((0, 3)))
    assert hvd.allreduce(nothing).shape == (0, 3)
    assert hvd.broadcast_(nothing, 0).shape == (0, 3)
    rows = mx.nd.ones((2, 3)) if hvd.rank() == 0 else nothing
    check(hvd.allgather(rows), np.ones((2, 3), np.float32))
    assert hvd.allgather(nothing).shape == (0, 3)
    output, received = hvd.alltoall(nothing, [0] * hvd.size())
    assert output.shape == (0, 3) and received.asnumpy().tolist() == [0] * hvd.size()
    shapeless = mx.nd.empty(())
    assert hvd.allreduce(shapeless).shape == (0,)
    with pytest.raises(ValueError, match="dimension"):
        hvd.reducescatter(shapeless)


def test_arrays_of_the_numpy_package() -> None:
    array = mx.np.array(values(hvd.rank(), (2, 3), "float32"))
    result = hvd.allreduce(array, op=hvd.Sum)
    assert isinstance(result, mx.np.ndarray)
    check(result, np.add.reduce(of_all((2, 3), "float32")))
    gathered = hvd.allgather(array)
    assert isinstance(gathered, mx.np.ndarray)
    check(gathered, np.concatenate(of_all((2, 3), "float32")))
    with mx.util.np_shape(True):
        assert float(hvd.allreduce(mx.np.array(2.0), op=hvd.Sum)) == 2.0 * hvd.size()


def test_layouts_of_onednn() -> None:
    """Convolutions have results, and after a prediction weights, whose memory is in another order."""
    net = gluon.nn.Conv2D(32, 3, in_channels=16)
    net.initialize()
    hvd.broadcast_parameters(net.collect_params(), prefix="onednn.")
    data = mx.nd.array(values(hvd.rank(), (2, 16, 8, 8), "float32"))
    everything = [mx.nd.array(each) for each in of_all((2, 16, 8, 8), "float32")]
    with autograd.record():
        total = np.sum([net(each).asnumpy() for each in everything], axis=0)
        np.testing.assert_allclose(hvd.allreduce(net(data), op=hvd.Sum).asnumpy(), total, rtol=1e-4, atol=1e-5)
        gathered = hvd.allgather(net(data)).asnumpy()
    np.testing.assert_allclose(gathered, np.concatenate([net(each).asnumpy() for each in everything]), atol=1e-5)
    net(data).wait_to_read()
    weight = net.weight.data()
    expected = hvd.allgather(weight).asnumpy()[:32]
    weight *= hvd.rank() + 1
    net(data).wait_to_read()
    hvd.broadcast_(weight, 0)
    np.testing.assert_array_equal(weight.asnumpy(), expected)
    net(data).wait_to_read()
    with autograd.record():
        convolved = net(data)
    hvd.allreduce_(convolved)
    with pytest.raises(mx.base.MXNetError, match=r"layout of oneDNN.*x\[:\] = hvd.allreduce\(x\)"):
        convolved.wait_to_read()


def test_gradients_do_not_flow_through_verbs() -> None:
    weight = mx.nd.ones((2,))
    weight.attach_grad()
    with autograd.record():
        loss = (weight * 3 + hvd.allreduce(weight * 5)).sum()
    loss.backward()
    check(weight.grad, np.full(2, 3, np.float32))


@pytest.mark.usefixtures("numbered_anew")
def test_process_sets() -> None:
    first = hvd.add_process_set([0])
    others = hvd.add_process_set(list(range(1, hvd.size()))) if hvd.size() > 2 else None
    own = first if hvd.rank() == 0 else others
    if own is not None:
        members = own.ranks or []
        expected = np.add.reduce([values(rank, (3,), "float32") for rank in members])
        check(hvd.allreduce(mine((3,), "float32"), op=hvd.Sum, process_set=own, name="set"), expected)
        check(hvd.broadcast(mine((3,), "float32"), members[-1], process_set=own), values(members[-1], (3,), "float32"))
    if hvd.rank() != 0:
        with pytest.raises(mx.base.MXNetError, match="process set"):
            hvd.allgather(mine((3,), "float32"), name="not a member", process_set=first)
    hvd.barrier()
    for each in (first, others):
        assert each is None or hvd.remove_process_set(each)


def test_handles() -> None:
    rank = hvd.rank()
    started = [hvd.allreduce_async(mine((3,), "float32", seed), op=hvd.Sum, name=f"h{seed}") for seed in range(5)]
    gathering = hvd.allgather_async(mine((2,), "int64"), name="h")
    while not all(map(hvd.poll, started)):
        pass
    for seed, handle in enumerate(started):
        check(hvd.synchronize(handle), np.add.reduce(of_all((3,), "float32", seed)))
    check(hvd.synchronize(gathering), np.concatenate(of_all((2,), "int64")))
    assert hvd.synchronize(gathering) is None
    output, received = hvd.synchronize(hvd.alltoall_async(mine((hvd.size(),), "float32"), name="h"))
    check(output, np.stack(of_all((hvd.size(),), "float32"))[:, rank])
    assert received.asnumpy().tolist() == [1] * hvd.size()
    scattered = hvd.synchronize(hvd.reducescatter_async(mine((hvd.size(),), "float32"), hvd.Sum, name="h"))
    check(scattered, np.add.reduce(of_all((hvd.size(),), "float32"))[rank : rank + 1])
    check(hvd.synchronize(hvd.broadcast_async(mine((3,), "int8"), 0, name="h")), values(0, (3,), "int8"))
    group = hvd.grouped_allreduce_async([mine((3,), "int32"), mine((2,), "int32")], op=hvd.Sum)
    assert [result.shape for result in hvd.synchronize(group)] == [(3,), (2,)]


def test_objects() -> None:
    assert hvd.broadcast_object({"rank": hvd.rank()}, hvd.size() - 1) == {"rank": hvd.size() - 1}
    assert hvd.allgather_object(hvd.rank()) == list(range(hvd.size()))


@pytest.mark.usefixtures("numbered_anew")
def test_join() -> None:
    steps = 3 + hvd.rank()
    for step in range(steps):
        result = hvd.allreduce(mx.nd.ones((2,)), op=hvd.Sum, name=f"step {step}")
        working = sum(step < 3 + rank for rank in range(hvd.size()))
        check(result, np.full(2, working, np.float32))
    assert hvd.join() == hvd.size() - 1


@pytest.mark.usefixtures("numbered_anew")
def test_orders_that_differ_between_ranks() -> None:
    seed = 11
    for round_ in range(10):
        order = list(range(40))
        random.Random(f"{seed} {round_} {hvd.rank()}").shuffle(order)
        results = {}
        for i in order:
            array = mine((i + 1,), "float32", i)
            if i % 4 == 0:
                results[i] = hvd.allreduce_(array * 1, op=hvd.Sum, name=f"o{i}", priority=i)
            else:
                results[i] = hvd.allreduce(array, op=hvd.Sum, name=f"o{i}", priority=-i)
        for i, result in results.items():
            check(result, np.add.reduce(of_all((i + 1,), "float32", i)))


def test_five_hundred_operations_in_flight() -> None:
    """Ranks read the results in opposite orders, and the inputs are computed and dropped meanwhile."""
    for _ in range(3):
        results = []
        for i in range(500):
            array = mx.nd.ones((100,)) * (hvd.rank() + i)
            results.append(hvd.allreduce(array, op=hvd.Sum, name=f"many.{i}"))
        expected = [sum(rank + i for rank in range(hvd.size())) for i in range(500)]
        order = range(500) if hvd.rank() % 2 else range(499, -1, -1)
        assert all((results[i] == expected[i]).asnumpy().all() for i in order)


def test_result_of_a_chain_is_not_read_too_early() -> None:
    """The input is the lazy result of an operation, and the result the input of the next one."""
    array = mx.nd.ones((64, 64))
    for i in range(30):
        array = mx.nd.dot(array, mx.nd.ones((64, 64)) / 64)
        array = hvd.allreduce(array, name=f"chain.{i}") + 1
    np.testing.assert_allclose(array.asnumpy(), 31.0, rtol=1e-4)
