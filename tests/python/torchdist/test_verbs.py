"""Verbs and arguments that the random calls do not have, and what is refused."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional

from horovod.torch.distributed import PeerLostError, TimeoutError

pytestmark = pytest.mark.usefixtures("groups")
SHORT = timedelta(seconds=0.3)


def ranks() -> list[int]:
    return list(range(dist.get_world_size()))


def test_premul_sum_multiplies_before_the_sum() -> None:
    for factor in (2.0, torch.tensor([3.0])):
        tensor = torch.full((5,), float(dist.get_rank() + 1))
        dist.all_reduce(tensor, dist._make_nccl_premul_sum(factor))
        assert tensor.tolist() == [float(factor) * sum(rank + 1 for rank in ranks())] * 5


def test_averages() -> None:
    tensor = torch.full((3,), float(dist.get_rank()))
    dist.all_reduce(tensor, dist.ReduceOp.AVG)
    assert tensor.tolist() == [sum(ranks()) / len(ranks())] * 3
    output = torch.empty(2)
    dist.reduce_scatter_tensor(output, torch.ones(2 * len(ranks())), dist.ReduceOp.AVG)
    assert output.tolist() == [1.0, 1.0]


def test_types_that_are_only_moved() -> None:
    for dtype in (torch.float8_e4m3fn, torch.uint32, torch.uint64):
        tensor = torch.full((4,), dist.get_rank() + 1).to(dtype)
        outputs = [torch.zeros(4).to(dtype) for _ in ranks()]
        dist.all_gather(outputs, tensor)
        assert [int(output.to(torch.float32)[0]) for output in outputs] == [rank + 1 for rank in ranks()]
        dist.broadcast(tensor, 0)
        assert int(tensor.to(torch.float32)[3]) == 1
        with pytest.raises(ValueError, match="cannot reduce tensors of"):
            dist.all_reduce(tensor)


def test_reductions_that_do_not_exist_are_refused() -> None:
    for op, dtype in ((dist.ReduceOp.BAND, torch.float32), (dist.ReduceOp.MAX, torch.complex64)):
        with pytest.raises((ValueError, dist.DistBackendError)):
            dist.all_reduce(torch.ones(2, dtype=dtype), op)
    dist.barrier()  # and the group goes on


def test_sparse_sums() -> None:
    size = len(ranks())
    mine = torch.sparse_coo_tensor(torch.tensor([[0, dist.get_rank() + 1]]), torch.ones(2), (size + 1,))
    dist.all_reduce(mine)
    assert mine.to_dense().tolist() == [float(size)] + [1.0] * size


def test_objects() -> None:
    me, size = dist.get_rank(), len(ranks())
    gathered: list[Any] = [None] * size
    dist.all_gather_object(gathered, {"rank": me, "text": "x" * 100 * me})
    assert [each["rank"] for each in gathered] == ranks()
    told = [("of", me), None]
    dist.broadcast_object_list(told, size - 1)
    assert told == [("of", size - 1), None]
    collected: list[Any] | None = [None] * size if me == 0 else None
    dist.gather_object(me * 2, collected, 0)
    assert collected is None or collected == [rank * 2 for rank in ranks()]
    part: list[Any] = [None]
    dist.scatter_object_list(part, [f"part {rank}" for rank in ranks()], 0)
    assert part == [f"part {me}"]


def test_coalesced_forms() -> None:
    me, size = dist.get_rank(), len(ranks())
    tensors = [torch.full((3,), float(me)), torch.full((2, 2), 1.0)]
    dist.all_reduce_coalesced(tensors)
    assert tensors[0].tolist() == [float(sum(ranks()))] * 3 and tensors[1].sum() == 4 * size
    with dist._coalescing_manager(async_ops=True) as manager:
        one, two = torch.ones(4), torch.full((2,), 2.0)
        dist.all_reduce(one)
        dist.all_reduce(two)
    manager.wait()
    assert one.tolist() == [size] * 4 and two.tolist() == [2.0 * size] * 2
    outputs = functional.all_gather_into_tensor_coalesced(
        [torch.full((1,), float(me)), torch.ones(2)], dist.group.WORLD
    )
    assert outputs[0].tolist() == [float(rank) for rank in ranks()] and outputs[1].tolist() == [1.0] * 2 * size
    parts = functional.reduce_scatter_tensor_coalesced([torch.ones(2 * size)], "sum", [0], dist.group.WORLD)
    assert parts[0].tolist() == [float(size)] * 2


def test_functional_collectives() -> None:
    size = len(ranks())
    assert functional.all_reduce(torch.ones(3), "sum", dist.group.WORLD).tolist() == [float(size)] * 3
    whole = functional.all_gather_tensor(torch.tensor([float(dist.get_rank())]), 0, dist.group.WORLD)
    assert whole.tolist() == [float(rank) for rank in ranks()]
    moved = functional.all_to_all_single(torch.arange(float(size)), None, None, dist.group.WORLD)
    assert moved.tolist() == [float(dist.get_rank())] * size


def test_futures_have_results_and_run_callbacks() -> None:
    size = len(ranks())
    work = dist.all_reduce(torch.ones(2), async_op=True)
    doubled = work.get_future().then(lambda future: future.value()[0] * 2)
    assert doubled.wait().tolist() == [2.0 * size] * 2

    def another(future: Any) -> torch.Tensor:  # callbacks may wait for further collectives
        tensor = future.value()[0]
        dist.all_reduce(tensor)
        return tensor

    chained = dist.all_reduce(torch.ones(2), async_op=True).get_future().then(another)
    assert chained.wait().tolist() == [float(size * size)] * 2


def test_ten_thousand_operations_in_flight() -> None:
    tensors = [torch.full((3,), float(number % 7)) for number in range(10000)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    for work in works:
        work.wait()
    size = len(ranks())
    assert all(tensor.tolist() == [float(number % 7) * size] * 3 for number, tensor in enumerate(tensors))


def test_dropped_works_are_done_all_the_same() -> None:
    tensors = [torch.ones(1000) for _ in range(200)]
    for tensor in tensors:
        dist.all_reduce(tensor, async_op=True)
    dist.barrier()
    assert all(tensor[0] == len(ranks()) for tensor in tensors)


def test_receiving_from_any_source_with_tags() -> None:
    size, me = len(ranks()), dist.get_rank()
    if me == 0:
        for tag in (2, 1):
            heard = set()
            for _ in range(size - 1):
                tensor = torch.zeros(3, dtype=torch.int64)
                source = dist.recv(tensor, tag=tag)
                assert tensor.tolist() == [source * 10 + tag] * 3
                heard.add(source)
            assert heard == set(range(1, size))
    else:
        works = [dist.isend(torch.full((3,), me * 10 + tag), 0, tag=tag) for tag in (1, 2)]
        for work in works:
            work.wait()


def test_messages_between_two_ranks_arrive_in_order() -> None:
    me = dist.get_rank()
    if me > 1 or len(ranks()) < 2:
        return
    if me == 0:
        works = [dist.isend(torch.full((number % 50,), number), 1) for number in range(300)]
        for work in works:
            work.wait()
    else:
        for number in range(300):
            tensor = torch.zeros(number % 50, dtype=torch.int64)
            dist.recv(tensor, 0)
            assert tensor.tolist() == [number] * (number % 50)


def test_ranks_that_disagree_get_the_same_error() -> None:
    if len(ranks()) < 2:
        return
    with pytest.raises(dist.DistBackendError, match="mismatched"):
        dist.all_reduce(torch.ones(2 + dist.get_rank()))
    with pytest.raises(dist.DistBackendError, match="mismatched"):
        (dist.all_reduce if dist.get_rank() == 0 else lambda tensor: dist.broadcast(tensor, 0))(torch.ones(2))
    with pytest.raises((ValueError, dist.DistBackendError), match=r"number of elements|mismatched|size"):
        outputs = [torch.empty(2) for _ in ranks()]
        dist.all_gather(outputs, torch.ones(2 if dist.get_rank() == 0 else 3))
    dist.barrier()


def test_wrong_sizes_are_refused_before_anything_is_sent() -> None:
    size = len(ranks())
    with pytest.raises((ValueError, RuntimeError), match="size"):
        dist.all_gather_into_tensor(torch.empty(size * 2 + 1), torch.ones(2))
    with pytest.raises((ValueError, RuntimeError), match="size"):
        dist.reduce_scatter_tensor(torch.empty(2), torch.ones(size * 2 + 1))
    with pytest.raises((ValueError, RuntimeError)):
        dist.all_to_all_single(torch.empty(3), torch.ones(3), [3] * (size + 1), [3] * (size + 1))


def test_a_call_ends_at_the_timeout_of_its_group() -> None:
    if len(ranks()) < 2:
        return
    group = dist.new_group(timeout=SHORT)
    tensor = torch.ones(3)
    if dist.get_rank() == 0:
        with pytest.raises(TimeoutError, match=r"Timed out waiting 300ms for all_reduce"):
            dist.all_reduce(tensor, group=group)
        work = dist.irecv(torch.empty(3), 1)
        with pytest.raises(dist.DistBackendError, match="Timed out waiting 100ms"):
            work.wait(timedelta(seconds=0.1))
    dist.barrier()
    if dist.get_rank() != 0:  # the rank that came late meets the others' operation
        dist.all_reduce(tensor, group=group)
    if dist.get_rank() == 1:
        dist.send(torch.ones(3), 0)
    dist.barrier()
    dist.destroy_process_group(group)


def test_monitored_barrier_names_the_missing() -> None:
    dist.monitored_barrier()
    if len(ranks()) < 2:
        return
    missing = len(ranks()) - 1
    if dist.get_rank() == 0:
        with pytest.raises(RuntimeError, match=rf"Rank {missing} failed to pass monitoredBarrier"):
            dist.monitored_barrier(timeout=SHORT)
    elif dist.get_rank() != missing:
        with pytest.raises(RuntimeError, match="successfully reached monitoredBarrier"):
            dist.monitored_barrier(timeout=timedelta(seconds=3))
    dist.barrier()


def test_exceptions_are_those_of_pytorch() -> None:
    assert issubclass(PeerLostError, dist.DistNetworkError) and issubclass(TimeoutError, dist.DistBackendError)
