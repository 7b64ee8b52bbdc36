"""Compressors: what comes out of a reduction, on every rank, and what goes over the wire."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import horovod.torch as hvd
from horovod._generic.handles import handles
from horovod.torch.compression import (
    Compression,
    Int8Compressor,
    PowerSGDCompressor,
    ReducingCompressor,
    TopKCompressor,
    is_reducing,
)

MAKERS = [Int8Compressor, lambda **more: TopKCompressor(0.05, **more), lambda **more: PowerSGDCompressor(4, **more)]
IDS = ["int8", "topk", "powersgd"]
every_compressor = pytest.mark.parametrize("make", MAKERS, ids=IDS)


def random_of_rank(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1000 * seed + hvd.rank())).to(dtype)


def distance(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a.double() - b.double()).norm() / b.double().norm())


def assert_same_on_all_ranks(tensor: torch.Tensor) -> None:
    for other in hvd.allgather(tensor.view(torch.uint8).unsqueeze(0)):
        assert torch.equal(other, tensor.view(torch.uint8))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(
    ("compression", "wire"), [(Compression.fp16, torch.float16), (Compression.bf16, torch.bfloat16)], ids=str
)
def test_casts(compression: type, wire: torch.dtype, dtype: torch.dtype) -> None:
    values = random_of_rank(50, dtype=dtype)
    result = hvd.allreduce(values, compression=compression, op=hvd.Sum)
    assert result.dtype == dtype
    small = values if compression is Compression.bf16 and dtype == torch.float16 else values.to(wire)
    assert torch.equal(result, hvd.allreduce(small, op=hvd.Sum).to(dtype))


def test_casts_leave_integers_alone() -> None:
    values = torch.full((5,), 2**20 + hvd.rank())
    for compression in (Compression.fp16, Compression.bf16):
        assert torch.equal(
            hvd.allreduce(values, compression=compression, op=hvd.Max), hvd.allreduce(values, op=hvd.Max)
        )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("op", [hvd.Average, hvd.Sum], ids=["Average", "Sum"])
def test_int8_is_close(op: int, dtype: torch.dtype) -> None:
    for shape in ((2048 * hvd.size(),), (6145,), (63, 105), (10, 21, 30)):
        values = random_of_rank(*shape, dtype=dtype)
        result = Int8Compressor().reduce_async(values, "close", op, hvd.global_process_set, 2.0, 0.25)()
        assert result.shape == values.shape and result.dtype == dtype
        assert distance(result, hvd.allreduce(values.double(), op=op) / 2) < 0.02
        assert_same_on_all_ranks(result)


def test_topk_sends_the_largest() -> None:
    values = random_of_rank(5000)
    threshold = values.abs().topk(50).values.min()
    wanted = hvd.allreduce(torch.where(values.abs() >= threshold, values, 0), op=hvd.Sum)
    result = TopKCompressor(0.01).reduce_async(values, "largest", hvd.Sum)()
    assert torch.equal(result, wanted)
    assert_same_on_all_ranks(result)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_powersgd_is_exact_for_matrices_of_low_rank(dtype: torch.dtype) -> None:
    basis = torch.randn(2, 90, generator=torch.Generator().manual_seed(5))
    values = (random_of_rank(80, 2) @ basis).to(dtype).view(80, 9, 10)
    compressor = PowerSGDCompressor(rank=4)
    result = compressor.reduce_async(values, "low", hvd.Average)()
    assert result.shape == values.shape and result.dtype == dtype
    assert distance(result, hvd.allreduce(values.double())) < (0.01 if dtype == torch.bfloat16 else 1e-5)
    assert_same_on_all_ranks(result)


@every_compressor
@pytest.mark.parametrize("op", [hvd.Average, hvd.Sum], ids=["Average", "Sum"])
def test_repeated_values_arrive_in_the_end(make: type[ReducingCompressor], op: int) -> None:
    """Error feedback: the mean of many reductions of the same tensor is right, also where one is not."""
    values = random_of_rank(100, 100)
    exact = hvd.allreduce(values, op=op)

    def mean_error(compressor: ReducingCompressor, name: str | None) -> float:
        total = torch.zeros_like(exact)
        for _ in range(100):
            total += compressor.reduce_async(values, name, op)()
        return distance(total / 100, exact)

    with_feedback = mean_error(make(), "feedback")
    assert with_feedback < 0.2
    assert mean_error(make(error_feedback=False), "feedback") > 4 * with_feedback
    assert mean_error(make(), None) > 4 * with_feedback, "a tensor without a name has no memory"


@every_compressor
def test_small_tensors_and_integers_are_reduced_as_they_are(make: type[ReducingCompressor]) -> None:
    compressor = make()
    for values in (random_of_rank(4095), random_of_rank(1), torch.full((100, 100), hvd.rank()), torch.tensor(2.0)):
        for op in (hvd.Average, hvd.Sum):
            assert torch.equal(compressor.reduce_async(values, "plain", op)(), hvd.allreduce(values, op=op))


@every_compressor
def test_gaps_in_memory_do_not_matter(make: type[ReducingCompressor]) -> None:
    values = random_of_rank(4, 8, 16, 16).contiguous(memory_format=torch.channels_last)
    result = make().reduce_async(values, "gaps")()
    assert torch.equal(result, make().reduce_async(values.contiguous(), "gaps")())


@every_compressor
def test_the_input_stays(make: type[ReducingCompressor]) -> None:
    values = random_of_rank(80, 80).requires_grad_()
    before = values.detach().clone()
    compressor = make()
    for _ in range(3):
        assert not compressor.reduce_async(values, "input", hvd.Sum, hvd.global_process_set, 3.0)().requires_grad
    assert torch.equal(values, before)


@every_compressor
def test_what_it_cannot_do_is_said(make: type[ReducingCompressor]) -> None:
    values = random_of_rank(80, 80)
    for op in (hvd.Min, hvd.Max, hvd.Product, hvd.Adasum):
        with pytest.raises(ValueError, match="Average"):
            make().reduce_async(values, "op", op)
    with pytest.raises(ValueError, match="dense"):
        make().reduce_async(values.to_sparse(), "sparse")
    with pytest.raises(ValueError, match="scalar"):
        make().reducescatter_async(torch.tensor(1.0), "scalar")


def test_choosing() -> None:
    assert not is_reducing(Compression.none) and not is_reducing(Compression.fp16)
    assert is_reducing(Compression.int8)
    assert Compression.int8() is not Compression.int8
    with pytest.raises(ValueError, match="brackets"):
        is_reducing(Compression.topk)
    with pytest.raises(ValueError, match="ratio"):
        Compression.topk(ratio=0)
    with pytest.raises(ValueError, match="rank"):
        Compression.powersgd(rank=0)


@every_compressor
def test_ranks_may_wait_in_different_orders(make: type[ReducingCompressor]) -> None:
    compressor = make()
    values = [random_of_rank(70, 90, seed=i) for i in range(6)]
    waits = {i: compressor.reduce_async(values[i], f"order.{i}") for i in range(6)}
    order = list(range(6)) if hvd.rank() % 2 == 0 else list(reversed(range(6)))
    results = {i: waits[i]() for i in order}
    for i in range(6):
        assert torch.equal(results[i], make().reduce_async(values[i], f"order.{i}")())
        assert waits[i]() is results[i], "waiting again is allowed"


@every_compressor
def test_every_reduction_takes_one_number(make: type[ReducingCompressor]) -> None:
    """Numbers name the operations without names, so their count must not depend on how far an exchange has come."""
    compressor = make()
    before = handles.next_number()
    waits = [compressor.reduce_async(random_of_rank(70, 90, seed=i), None if i % 2 else f"{i}") for i in range(4)]
    for wait in waits:
        wait()
    assert handles.next_number() == before + 5


@every_compressor
@pytest.mark.usefixtures("numbered_anew")
def test_a_name_can_be_under_way_once(make: type[ReducingCompressor]) -> None:
    compressor = make()
    values = random_of_rank(80, 80)
    if hvd.rank() == 0:
        wait = compressor.reduce_async(values, "once")
        with pytest.raises(ValueError, match="once"):
            compressor.reduce_async(values, "once")
        hvd.barrier()
    else:
        hvd.barrier()
        wait = compressor.reduce_async(values, "once")
    assert torch.equal(wait(), make().reduce_async(values, "once")())


@every_compressor
@pytest.mark.usefixtures("numbered_anew")
def test_process_sets(make: type[ReducingCompressor]) -> None:
    ranks = list(range(1, hvd.size()))
    others = hvd.add_process_set(ranks)
    values = random_of_rank(80, 80)
    compressor = make()
    if others.included():
        result = compressor.reduce_async(values, "others", hvd.Sum, others)()
        results = hvd.allgather(result, process_set=others).view(len(ranks), 80, 80)
        assert all(torch.equal(each, result) for each in results)
        if isinstance(compressor, Int8Compressor):
            exact = hvd.allgather(values, process_set=others).view(len(ranks), 80, 80).sum(0)
            assert distance(result, exact) < 0.02
    else:
        with pytest.raises(ValueError):
            compressor.reduce_async(values, "others", hvd.Sum, others)
    hvd.remove_process_set(others)
    with pytest.raises(ValueError, match="not registered"):
        compressor.reduce_async(values, "others", hvd.Sum, others)


@every_compressor
def test_reducescatter_gives_the_rows_of_this_rank(make: type[ReducingCompressor]) -> None:
    for rows in (3 * hvd.size(), 3 * hvd.size() + 1, hvd.size() - 1):
        values = random_of_rank(rows, 3000)
        exact = hvd.reducescatter(values, op=hvd.Sum)
        result = make().reducescatter_async(values, "rows", hvd.Sum)()
        assert result.shape == exact.shape and result.dtype == exact.dtype
        if make is Int8Compressor:
            assert exact.numel() == 0 or distance(result, exact) < 0.02
        else:
            whole = make().reduce_async(values, "rows", hvd.Sum)()
            assert torch.equal(hvd.allgather(result), whole)
    small = torch.full((hvd.size() + 1, 2), float(hvd.rank()))
    assert torch.equal(make().reducescatter_async(small, "small")(), hvd.reducescatter(small))


def test_int8_reducescatter_remembers_its_error() -> None:
    values = random_of_rank(4, 3000)
    exact = hvd.reducescatter(values)
    compressor = Int8Compressor()
    results = [compressor.reducescatter_async(values, "memory")() for _ in range(20)]
    if exact.numel():
        assert distance(sum(results) / 20, exact) < distance(results[0], exact) / 4


@every_compressor
def test_the_verbs_take_it(make: type[ReducingCompressor]) -> None:
    values = [random_of_rank(70, 90), random_of_rank(3), random_of_rank(70, 90, seed=1)]
    alone = hvd.allreduce(values[0], name="verb", compression=make(), op=hvd.Sum, prescale_factor=2.0)
    assert torch.equal(alone, make().reduce_async(values[0], "verb", hvd.Sum, hvd.global_process_set, 2.0)())
    for i, each in enumerate(hvd.grouped_allreduce(values, name="group", compression=make(), op=hvd.Sum)):
        assert torch.equal(each, make().reduce_async(values[i], f"group_{i + 1}of3", hvd.Sum)())
    rows = hvd.reducescatter(values[0], name="verb", compression=make())
    assert torch.equal(rows, make().reducescatter_async(values[0], "verb")())
    for i, each in enumerate(hvd.grouped_reducescatter(values, name="group", compression=make())):
        assert torch.equal(each, make().reducescatter_async(values[i], f"group_{i + 1}of3")())
    with pytest.raises(ValueError, match="at least one"):
        hvd.grouped_allreduce([], compression=make())


@every_compressor
def test_gradients_flow_through_the_verbs(make: type[ReducingCompressor]) -> None:
    values = random_of_rank(80, 80).requires_grad_()
    hvd.allreduce(values, compression=make(), op=hvd.Sum).sum().backward()
    assert values.grad is not None and torch.equal(values.grad, torch.full((80, 80), float(hvd.size())))


@every_compressor
def test_an_overflow_is_seen_everywhere_and_then_forgotten(make: type[ReducingCompressor]) -> None:
    compressor, twin = make(), make(error_feedback=False)
    for bad in (float("inf"), float("nan")):
        values = random_of_rank(80, 80)
        if hvd.rank() == 0:
            values[3, 3] = bad
        assert not compressor.reduce_async(values, "overflow")().isfinite().all()
    for _ in range(3):
        values = random_of_rank(80, 80)
        assert compressor.reduce_async(values, "overflow")().isfinite().all()
        assert twin.reduce_async(values, "overflow")().isfinite().all()


@every_compressor
def test_zeros_do_not_stop_what_follows(make: type[ReducingCompressor]) -> None:
    compressor = make()
    assert not compressor.reduce_async(torch.zeros(80, 80), "zeros")().any()
    values = torch.zeros(80, 80)
    values[70, 70] = 5.0
    for _ in range(3):
        result = compressor.reduce_async(values, "zeros")()
    assert result[70, 70] == pytest.approx(5.0, rel=0.01)


@every_compressor
def test_memory_ends_with_the_shape_and_with_the_world(make: type[ReducingCompressor]) -> None:
    compressor = make()
    values = random_of_rank(100, 100)
    first = compressor.reduce_async(values, "world")()
    assert not torch.equal(compressor.reduce_async(values, "world")(), first)
    compressor.reduce_async(values.view(50, 200), "world")()
    assert torch.equal(compressor.reduce_async(values, "world")(), first)
    hvd.barrier()
    hvd.shutdown()
    hvd.init(process_sets="dynamic")
    assert torch.equal(compressor.reduce_async(values, "world")(), first)


@every_compressor
def test_an_exchange_ends_with_its_world(make: type[ReducingCompressor]) -> None:
    hvd.barrier()
    values = random_of_rank(80, 80)
    pending = make().reduce_async(values, "ends") if hvd.rank() == 0 else None  # the others never come
    hvd.barrier()
    hvd.shutdown()
    hvd.init(process_sets="dynamic")
    again = make().reduce_async(values, "ends")
    if pending is not None:
        with pytest.raises(hvd.HorovodInternalError, match="shut down"):
            pending()
    assert_same_on_all_ranks(again())


@every_compressor
def test_a_disagreement_is_an_error_everywhere_and_then_over(make: type[ReducingCompressor]) -> None:
    compressor = make()
    with pytest.raises(hvd.HorovodInternalError, match="disagree"):
        compressor.reduce_async(random_of_rank(80, 80 if hvd.rank() == 0 else 100), "disagree")()
    values = random_of_rank(80, 80)
    assert torch.equal(compressor.reduce_async(values, "disagree")(), make().reduce_async(values, "disagree")())


def bytes_sent(path: Path) -> int:
    """What rank 0 sent according to the engine's timeline, times size / (size - 1): the bytes of each result, twice for
    allreduce, as they go to who adds them and come back."""
    total = 0
    names: dict[int, str] = {}
    for event in json.loads(path.read_text()):
        if event["name" if event["ph"] == "M" else "ph"] == "process_name":
            names[event["pid"]] = event["args"]["name"].split(".")[0]
        elif event["ph"] == "E" and "shape" in event.get("args", {}):
            size = {"uint8": 1, "float32": 4}[event["args"]["dtype"]]
            for dimension in json.loads(event["args"]["shape"]):
                size *= dimension
            total += size * {"allreduce": 2, "alltoall": 1, "allgather": 1}[names[event["pid"]]]
    return total


@pytest.mark.parametrize("elements", [2048, 2049, 10_000, 1_000_003])  # per rank: no fewer are compressed
def test_int8_sends_less_than_a_third(elements: int, tmp_path: Path) -> None:
    elements = elements * hvd.size()
    values = random_of_rank(elements)
    sent = []
    for reduce in (hvd.allreduce, lambda tensor: Int8Compressor().reduce_async(tensor, "bytes")()):
        path = tmp_path / f"{len(sent)}.json"
        hvd.start_timeline(str(path))
        hvd.barrier()
        reduce(values)
        hvd.barrier()
        hvd.stop_timeline()
        if hvd.rank() == 0:
            sent.append(bytes_sent(path))
    if hvd.rank() == 0:
        assert sent[0] == 2 * 4 * elements
        assert sent[0] / sent[1] > 3.5
