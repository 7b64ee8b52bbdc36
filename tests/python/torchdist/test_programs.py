"""What is built on torch.distributed, as it is: each gives what it gives with the backend "gloo"."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.algorithms.join import Join
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

Groups = tuple[dist.ProcessGroup, dist.ProcessGroup]


def model() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4))


def batch(step: int, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(step * 100 + rank)
    return torch.randn(8, 10, generator=generator), torch.randn(8, 4, generator=generator)


def train(net: nn.Module, optimizer: Any, steps: int = 4) -> None:
    for step in range(steps):
        inputs, wanted = batch(step, dist.get_rank())
        optimizer.zero_grad()
        nn.functional.mse_loss(net(inputs), wanted).backward()
        optimizer.step()


def by_ddp(group: dist.ProcessGroup, prepare: Callable[[Any], None] = lambda net: None, **options: Any) -> list[Any]:
    net = DistributedDataParallel(model(), process_group=group, bucket_cap_mb=0.01, **options)
    prepare(net)
    train(net, torch.optim.SGD(net.parameters(), lr=0.1))
    return [parameter.detach().clone() for parameter in net.parameters()]


def same(a: list[torch.Tensor], b: list[torch.Tensor]) -> bool:
    return all(torch.allclose(one, other, rtol=1e-5, atol=1e-6) for one, other in zip(a, b, strict=True))


@pytest.mark.parametrize(
    "options",
    [{}, {"gradient_as_bucket_view": True}, {"static_graph": True}, {"find_unused_parameters": True}],
    ids=str,
)
def test_ddp(groups: Groups, options: dict[str, Any]) -> None:
    assert same(by_ddp(groups[0], **options), by_ddp(groups[1], **options))


def test_ddp_hooks(groups: Groups) -> None:
    def powersgd(group: dist.ProcessGroup) -> Callable[[Any], None]:
        def prepare(net: Any) -> None:
            state = powerSGD_hook.PowerSGDState(group, matrix_approximation_rank=2, start_powerSGD_iter=2)
            net.register_comm_hook(state, powerSGD_hook.powerSGD_hook)

        return prepare

    def half(group: dist.ProcessGroup) -> Callable[[Any], None]:
        return lambda net: net.register_comm_hook(group, default_hooks.fp16_compress_hook)

    for hook in (half, powersgd):
        assert same(by_ddp(groups[0], hook(groups[0])), by_ddp(groups[1], hook(groups[1])))


def test_ddp_without_sync_and_with_uneven_inputs(groups: Groups) -> None:
    def run(group: dist.ProcessGroup) -> list[torch.Tensor]:
        net = DistributedDataParallel(model(), process_group=group)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        with net.no_sync():
            net(batch(9, dist.get_rank())[0]).sum().backward()
        with Join([net]):
            for step in range(2 + dist.get_rank()):
                inputs, wanted = batch(step, dist.get_rank())
                nn.functional.mse_loss(net(inputs), wanted).backward()
                optimizer.step()
        return [parameter.detach().clone() for parameter in net.parameters()]

    assert same(run(groups[0]), run(groups[1]))


def test_zero_redundancy_optimizer(groups: Groups) -> None:
    def run(group: dist.ProcessGroup) -> list[torch.Tensor]:
        net = DistributedDataParallel(model(), process_group=group)
        train(net, ZeroRedundancyOptimizer(net.parameters(), torch.optim.Adam, process_group=group, lr=0.01))
        return [parameter.detach().clone() for parameter in net.parameters()]

    assert same(run(groups[0]), run(groups[1]))


def whole(net: nn.Module) -> list[torch.Tensor]:
    return [each.full_tensor() if isinstance(each, DTensor) else each.detach() for each in net.parameters()]


def test_fsdp2(groups: Groups) -> None:
    def run(group: dist.ProcessGroup) -> list[torch.Tensor]:
        net = model()
        mesh = DeviceMesh.from_group(group, "cpu")
        for layer in net:
            if isinstance(layer, nn.Linear):
                fully_shard(layer, mesh=mesh)
        fully_shard(net, mesh=mesh)
        train(net, torch.optim.Adam(net.parameters(), lr=0.01))
        return [each.detach().clone() for each in whole(net)]

    assert same(run(groups[0]), run(groups[1]))


def test_tensor_parallel(groups: Groups) -> None:
    mesh = DeviceMesh.from_group(groups[0], "cpu")
    reference, net = model(), model()
    net[2] = nn.Linear(32, 32)
    net[2].load_state_dict(reference[2].state_dict())
    parallelize_module(net, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    inputs = batch(0, 0)[0]
    assert torch.allclose(net(inputs), reference(inputs), rtol=1e-4, atol=1e-5)
    net(inputs).sum().backward()


def test_dtensor(groups: Groups) -> None:
    mesh = DeviceMesh.from_group(groups[0], "cpu")
    values = torch.arange(24.0).view(6, 4)
    sharded = distribute_tensor(values, mesh, [Shard(0)])
    assert torch.equal(sharded.redistribute(mesh, [Shard(1)]).redistribute(mesh, [Replicate()]).to_local(), values)
    other = distribute_tensor(values.t().contiguous(), mesh, [Replicate()])
    assert torch.equal((sharded @ other).full_tensor(), values @ values.t())


def test_checkpoints(groups: Groups) -> None:
    folder: list[Any] = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(folder, 0)
    net = model()
    fully_shard(net, mesh=DeviceMesh.from_group(groups[0], "cpu"))
    before = [each.detach().clone() for each in whole(net)]
    state = {"model": net.state_dict()}
    checkpoint.save(state, checkpoint_id=folder[0])
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.zero_()
    checkpoint.load(state, checkpoint_id=folder[0])
    net.load_state_dict(state["model"])
    assert same(before, whole(net))


def test_compiled_collectives(groups: Groups) -> None:
    import torch.distributed._functional_collectives as functional

    @torch.compile(backend="aot_eager")
    def step(tensor: torch.Tensor) -> torch.Tensor:
        return functional.all_reduce(tensor * 2, "sum", groups[0]) + 1

    assert step(torch.ones(4)).tolist() == [2.0 * dist.get_world_size() + 1] * 4


def test_pipeline(groups: Groups) -> None:
    from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

    size, me = dist.get_world_size(), dist.get_rank()
    if size < 2:
        return
    torch.manual_seed(2)
    layers = [nn.Linear(6, 6) for _ in range(size)]
    stage = PipelineStage(layers[me], me, size, torch.device("cpu"), group=groups[0])
    schedule = ScheduleGPipe(stage, n_microbatches=2, loss_fn=nn.functional.mse_loss)
    inputs = torch.arange(24.0).view(4, 6) / 24
    wanted = inputs
    for layer in layers:
        wanted = layer(wanted)
    if me == 0:
        schedule.step(inputs)
    elif me == size - 1:
        result = schedule.step(target=torch.zeros(4, 6), losses=[])
        assert torch.allclose(result, wanted, atol=1e-6)
    else:
        schedule.step()
    assert layers[me].weight.grad is not None
