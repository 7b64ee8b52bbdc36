"""Small models, and what several suites ask about them."""

from __future__ import annotations

from collections.abc import Iterable

import torch

import horovod.torch as hvd


def make_model(seed: int = 1, width: int = 8) -> torch.nn.Sequential:
    """The same on all ranks."""
    torch.manual_seed(seed)
    return torch.nn.Sequential(
        torch.nn.Linear(4, width),
        torch.nn.Tanh(),
        torch.nn.Linear(width, width),
        torch.nn.Tanh(),
        torch.nn.Linear(width, 2),
    )


def batch(step: int, rank: int, rows: int = 3) -> torch.Tensor:
    """The input of a rank in a step."""
    return torch.randn(rows, 4, generator=torch.Generator().manual_seed(1000 * step + rank))


def flat(parameters: Iterable[torch.Tensor]) -> torch.Tensor:
    """All elements of the tensors, one after another."""
    return torch.cat([each.detach().flatten() for each in parameters])


def assert_same_on_all_ranks(
    parameters: Iterable[torch.Tensor], process_set: hvd.ProcessSet = hvd.global_process_set
) -> None:
    mine = flat(parameters)
    gathered = hvd.allgather(mine.unsqueeze(0), "weights", process_set)
    assert all(torch.equal(each, mine) for each in gathered)


def sgd(model: torch.nn.Module, lr: float = 0.1, **options: object) -> torch.optim.Optimizer:
    return hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=lr), model.named_parameters(), **options)


def mean_gradients(step: int, ranks: range | None = None, seed: int = 1) -> torch.Tensor:
    """What the gradients of all ranks are on average, computed here."""
    ranks = range(hvd.size()) if ranks is None else ranks
    all_of_them = []
    for rank in ranks:
        model = make_model(seed)
        model(batch(step, rank)).square().sum().backward()
        all_of_them.append(flat(p.grad for p in model.parameters()))
    return torch.stack(all_of_them).mean(0)


def backward(model: torch.nn.Module, step: int = 0) -> None:
    model(batch(step, hvd.rank())).square().sum().backward()


def gradients(model: torch.nn.Module) -> torch.Tensor:
    return flat(p.grad for p in model.parameters())
