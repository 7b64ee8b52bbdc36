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
