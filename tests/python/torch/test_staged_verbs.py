"""Tensors that the engine cannot reach are copied to the host and back.

That is for GPUs. Here it is done with tensors in host memory: the copies, the submitting thread and the endings are
real, only the streams are torch.cpu's, which do nothing.
"""

from __future__ import annotations

import threading

import pytest
import torch

import horovod.torch as hvd
from horovod.torch.gradients import TorchCollectives
from horovod.torch.tensors import TorchTensors

staged = TorchCollectives(TorchTensors(stage_all=True))


def mine(*shape: int) -> torch.Tensor:
    return torch.full(shape, hvd.rank() + 1.0)


def total() -> float:
    return hvd.size() * (hvd.size() + 1) / 2


def test_verbs_that_wait() -> None:
    size = hvd.size()
    values = mine(size, 2)
    assert torch.equal(staged.allreduce(values, op=hvd.Sum), torch.full((size, 2), total()))
    assert torch.equal(values, mine(size, 2))
    assert torch.equal(staged.broadcast(values, 0), torch.ones(size, 2))
    assert staged.allgather(values)[:: 2 * size, 0].tolist() == [float(rank + 1) for rank in range(size)][::2]
    assert torch.equal(staged.alltoall(values), torch.arange(1.0, size + 1)[:, None].expand(size, 2))
    assert torch.equal(staged.reducescatter(values, op=hvd.Sum), torch.full((1, 2), total()))
    assert staged.allreduce_(values, op=hvd.Sum) is values
    assert torch.equal(values, torch.full((size, 2), total()))
    group = staged.grouped_allreduce([mine(2), mine(0), mine(3)], op=hvd.Sum)
    assert [each.tolist() for each in group] == [[total()] * 2, [], [total()] * 3]


def test_verbs_with_handles() -> None:
    values = mine(3)
    assert torch.equal(staged.synchronize(staged.allreduce_async(values, op=hvd.Sum)), torch.full((3,), total()))
    assert torch.equal(values, mine(3))
    assert staged.synchronize(staged.allreduce_async_(values, op=hvd.Sum)) is values
    assert torch.equal(values, torch.full((3,), total()))
    assert staged.synchronize(staged.broadcast_async_(values, 0)) is values
    gathered = staged.synchronize(staged.allgather_async(mine(1)))
    assert gathered.tolist() == [rank + 1.0 for rank in range(hvd.size())]
    group = [mine(2), mine(3)]
    assert staged.synchronize(staged.grouped_allreduce_async_(group, op=hvd.Sum))[1] is group[1]
    assert group[1].tolist() == [total()] * 3
    assert "horovod-staging" in [thread.name for thread in threading.enumerate()]


def test_gradients() -> None:
    tensor = mine(3).requires_grad_()
    staged.allreduce(tensor, op=hvd.Sum).sum().backward()
    assert tensor.grad.tolist() == [float(hvd.size())] * 3
    tensor = mine(2).requires_grad_()
    (staged.allgather(tensor) * 3).sum().backward()
    assert tensor.grad.tolist() == [3.0, 3.0]


def test_a_leaf_is_changed_in_place() -> None:
    parameter = torch.nn.Parameter(mine(3))
    staged.allreduce_(parameter, op=hvd.Sum)
    assert parameter.detach().tolist() == [total()] * 3


def test_staged_and_direct_ranks_meet() -> None:
    """What a rank's tensors are in does not matter to the others."""
    collectives = staged if hvd.rank() == 0 else TorchCollectives(TorchTensors())
    assert collectives.allreduce(mine(3), name="met", op=hvd.Sum).tolist() == [total()] * 3


def test_the_input_is_copied_when_it_is_submitted() -> None:
    handles = []
    for i in range(50):
        values = torch.full((1000,), float(i))
        handles.append(staged.allreduce_async(values, name=f"copied.{i}", op=hvd.Max))
        values.fill_(-1)
    for i, handle in enumerate(handles):
        assert (hvd.synchronize(handle) == i).all()


@pytest.mark.usefixtures("numbered_anew")
def test_poll_and_errors() -> None:
    late = hvd.rank() == 0
    handle = 0 if late else staged.allreduce_async(mine(3), name="late", op=hvd.Sum)
    if not late:
        assert not staged.poll(handle)
        twice = staged.allreduce_async(mine(3), name="late", op=hvd.Sum)
        with pytest.raises(ValueError, match="late"):
            staged.synchronize(twice)
        assert staged.synchronize(twice) is None
    hvd.allgather(torch.ones(1), name="everyone polled")
    if late:
        handle = staged.allreduce_async(mine(3), name="late", op=hvd.Sum)
    assert staged.synchronize(handle).tolist() == [total()] * 3

    different = staged.allreduce_async(mine(3 + hvd.rank()), name="different")
    with pytest.raises(hvd.HorovodInternalError, match="different"):
        staged.synchronize(different)
    with pytest.raises(ValueError):
        staged.poll(different)


@pytest.mark.usefixtures("numbered_anew")
def test_pending_operations_end_with_the_world() -> None:
    name = "nobody else comes" if hvd.rank() == 0 else None
    handle = staged.allreduce_async(mine(3), name=name) if name else 0
    hvd.barrier()
    hvd.shutdown()
    if handle:
        with pytest.raises(hvd.HorovodInternalError):
            staged.synchronize(handle)
    hvd.init(process_sets="dynamic")
    left = staged.allreduce_async(mine(2), name="left behind") if hvd.rank() == 0 else 0
    hvd.barrier()
    hvd.shutdown()
    hvd.init(process_sets="dynamic")
    assert not left or staged.synchronize(left) is None
