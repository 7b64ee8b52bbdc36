"""Training with several ranks is training with one and the whole batch."""

from __future__ import annotations

import pytest
import torch
from models import assert_same_on_all_ranks, flat

import horovod.torch as hvd
from horovod.torch.optimizer import DistributedOptimizer, ShardedOptimizer

ROWS = 12  # of the whole batch: divisible by the numbers of ranks that are tested
STEPS = 60


def make_model() -> torch.nn.Module:
    torch.manual_seed(7)
    return torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Tanh(), torch.nn.Linear(16, 3)).double()


def whole_batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(step)
    inputs = torch.randn(ROWS, 6, generator=generator, dtype=torch.float64)
    return inputs, (inputs[:, :3] * inputs[:, 3:]).sign().clamp(min=0).argmax(1)


def train(model: torch.nn.Module, optimizer: torch.optim.Optimizer, rows: slice, pieces: int = 1) -> None:
    for step in range(STEPS):
        optimizer.zero_grad()
        inputs, labels = (each[rows] for each in whole_batch(step))
        for x, y in zip(inputs.chunk(pieces), labels.chunk(pieces), strict=True):
            loss = torch.nn.functional.cross_entropy(model(x), y)
            (loss / pieces).backward()
        optimizer.step()


@pytest.mark.parametrize("name", ["SGD", "AdamW"])
@pytest.mark.parametrize("way", ["plain", "fp16", "groups", "predivide", "passes", "sharded"])
def test_ranks_with_parts_equal_one_with_all(way: str, name: str) -> None:
    options = {"lr": 0.05, "momentum": 0.9} if name == "SGD" else {"lr": 0.01}
    alone = make_model()
    train(alone, getattr(torch.optim, name)(alone.parameters(), **options), slice(None))

    model = make_model()
    plain = getattr(torch.optim, name)(model.parameters(), **options)
    arguments = {
        "fp16": {"compression": hvd.Compression.fp16},
        "groups": {"groups": 2},
        "predivide": {"gradient_predivide_factor": 2.0},
        "passes": {"backward_passes_per_step": 2},
    }.get(way, {})
    if way == "sharded":
        optimizer = ShardedOptimizer(plain, model.named_parameters())
    else:
        optimizer = DistributedOptimizer(plain, model.named_parameters(), **arguments)
    each = ROWS // hvd.size()
    train(model, optimizer, slice(hvd.rank() * each, (hvd.rank() + 1) * each), pieces=2 if way == "passes" else 1)

    assert_same_on_all_ranks(model.parameters())
    tolerance = 0.05 if way == "fp16" else 1e-9
    torch.testing.assert_close(flat(model.parameters()), flat(alone.parameters()), rtol=tolerance, atol=tolerance)
    assert not torch.allclose(flat(model.parameters()), flat(make_model().parameters()), atol=0.05)


def test_many_gradients_of_many_sizes_for_many_steps() -> None:
    """Buckets of every size, in an order that changes from step to step, some parameters left out."""
    generator = torch.Generator().manual_seed(0)  # the same on all ranks
    sizes = [int(torch.randint(1, 5000, (1,), generator=generator)) for _ in range(60)]
    parameters = [torch.nn.Parameter(torch.zeros(size)) for size in sizes]
    optimizer = DistributedOptimizer(torch.optim.SGD(parameters, lr=1.0))
    mine = torch.Generator().manual_seed(hvd.rank())
    for step in range(1, 40):
        optimizer.zero_grad(set_to_none=step % 3 != 0)
        chosen = torch.randperm(len(parameters), generator=mine)[: 10 + step].tolist()
        loss = sum((parameters[number] * (hvd.rank() + step)).sum() for number in chosen)
        loss.backward()
        used = torch.zeros(len(parameters))
        used[chosen] = float(hvd.rank() + step)
        expected = hvd.allreduce(used, name="expected")
        optimizer.synchronize()
        for number, parameter in enumerate(parameters):
            assert torch.equal(parameter.grad, expected[number].expand_as(parameter)), (step, number)
        with optimizer.skip_synchronize():
            optimizer.step()
    assert_same_on_all_ranks(parameters)
