"""Groups: of some ranks, made by all or by their members only, used from threads, destroyed and made again."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

import horovod.numpy as hvd

pytestmark = pytest.mark.usefixtures("groups")


def total(group: Any, value: float) -> float:
    tensor = torch.tensor([value])
    dist.all_reduce(tensor, group=group)
    return float(tensor)


def count_sets() -> int:
    from horovod._native.library import library

    return int(library().hvd_process_set_ids(None, 0))


def test_members_alone_make_a_group() -> None:
    me, size = dist.get_rank(), dist.get_world_size()
    if size < 3:
        return
    for first in range(size - 1):
        pair = [first, first + 1]
        if me in pair:
            group = dist.new_group(pair, use_local_synchronization=True)
            assert total(group, me) == sum(pair)
            dist.destroy_process_group(group)


def test_groups_overlap_and_nest() -> None:
    me, size = dist.get_rank(), dist.get_world_size()
    groups = {}
    for last in range(size):
        members = list(range(last + 1))
        groups[last] = dist.new_group(members)
    for last, group in groups.items():
        if me <= last:
            assert total(group, me) == sum(range(last + 1))
            gathered: list[Any] = [None] * (last + 1)
            dist.all_gather_object(gathered, me, group)
            assert gathered == list(range(last + 1))
    for last, group in groups.items():
        if me <= last:
            dist.destroy_process_group(group)


def test_roots_and_peers_are_ranks_of_the_default_group() -> None:
    me, size = dist.get_rank(), dist.get_world_size()
    if size < 3:
        return
    members = [0, size - 1]
    group = dist.new_group(members)
    if me in members:
        tensor = torch.tensor([float(me)])
        dist.broadcast(tensor, size - 1, group)
        assert float(tensor) == size - 1
        if me == 0:
            dist.send(torch.tensor([5.0]), group=group, group_dst=1)
        else:
            dist.recv(tensor, group=group, group_src=0)
            assert float(tensor) == 5.0
        dist.destroy_process_group(group)


def test_groups_are_removed_with_their_members() -> None:
    """Many groups, one after another; without removal the engine would keep a process set for each."""
    me, size = dist.get_rank(), dist.get_world_size()
    before = count_sets()
    for number in range(60):
        members = [rank for rank in range(size) if rank != number % size] or [0]
        group = dist.new_group(members)
        again = dist.new_group(members)  # two groups of the same ranks share a set
        if me in members:
            assert total(group, 1.0) == total(again, 1.0) == len(members)
            dist.destroy_process_group(group)
            assert total(again, 2.0) == 2.0 * len(members)
            dist.destroy_process_group(again)
    dist.barrier()
    hvd.barrier()
    # The last ones are removed once all members have left, which this rank may hear of a little later.
    hvd.allreduce(np.zeros(1), name="after the groups")
    assert count_sets() <= before + 2


def test_a_group_is_made_again_before_all_members_have_left_the_old_one() -> None:
    me, size = dist.get_rank(), dist.get_world_size()
    if size < 3:
        return
    token = torch.ones(1)
    for _ in range(5):
        group = dist.new_group([0, 1])
        if me == 0:
            dist.destroy_process_group(group)
            dist.send(token, 1)
        elif me == 1:
            dist.recv(token, 0)
            for _ in range(30):  # meanwhile rank 0 begins the next group
                dist.send(token, 2)
            dist.destroy_process_group(group)
        elif me == 2:
            for _ in range(30):
                dist.recv(token, 1)
        again = dist.new_group([0, 1])
        if me < 2:
            assert total(again, 1.0) == 2.0
            dist.destroy_process_group(again)


def test_reductions_of_one_rank_keep_the_factor() -> None:
    me = dist.get_rank()
    group = dist.new_group([me], use_local_synchronization=True)
    for factor in (2.0, torch.tensor([3.0])):
        op = dist._make_nccl_premul_sum(factor)
        output, tensor = torch.empty(2), torch.ones(2)
        dist.reduce_scatter_tensor(output, torch.ones(2), op, group)
        dist.all_reduce(tensor, op, group)
        assert output.tolist() == tensor.tolist() == [float(factor)] * 2
    dist.destroy_process_group(group)


def test_many_groups_at_once() -> None:
    size = dist.get_world_size()
    groups = [dist.new_group(list(range(number % 2, size)) or [0]) for number in range(100)]
    for number, group in enumerate(groups):
        if dist.get_rank() >= number % 2:
            work = dist.all_reduce(torch.ones(1), group=group, async_op=True)
            work.wait()
    for group in groups:
        dist.destroy_process_group(group)


def test_a_program_can_add_the_set_itself() -> None:
    size = dist.get_world_size()
    if size < 3:
        return
    own = hvd.add_process_set([0, 1])
    group = dist.new_group([0, 1])
    if dist.get_rank() < 2:
        assert total(group, 1.0) == 2.0
        dist.destroy_process_group(group)
    dist.barrier()
    assert own.process_set_id in hvd.get_process_set_ids_and_ranks()  # it is the program's
    assert hvd.remove_process_set(own)


def test_threads_use_groups_of_their_own() -> None:
    groups = [dist.new_group() for _ in range(4)]
    sums: dict[int, list[float]] = {}

    def work(number: int) -> None:
        sums[number] = [total(groups[number], float(number + turn)) for turn in range(100)]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    size = dist.get_world_size()
    assert sums == {number: [float(number + turn) * size for turn in range(100)] for number in range(4)}
    for group in groups:
        dist.destroy_process_group(group)


def test_the_order_of_ranks_is_that_of_the_world() -> None:
    size = dist.get_world_size()
    if size < 2:
        return
    with pytest.raises(ValueError, match="keeps the order of ranks"):
        dist.distributed_c10d._new_group_with_tag(list(reversed(range(size))), sort_ranks=False)


def test_meshes() -> None:
    size = dist.get_world_size()
    mesh = init_device_mesh("cpu", (1, size), mesh_dim_names=("outer", "inner"))
    assert total(mesh.get_group("inner"), 1.0) == size
    assert total(mesh.get_group("outer"), 1.0) == 1.0
