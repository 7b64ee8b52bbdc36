"""Training with compressed gradients: the handwritten digits of scikit-learn, a small network, the same steps."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn

import horovod.torch as hvd
from horovod.torch.compression import Compression
from horovod.torch.optimizer import DistributedOptimizer

BATCH = 120  # over all ranks


@cache
def digits() -> tuple[torch.Tensor, torch.Tensor]:
    images, labels = load_digits(return_X_y=True)
    return torch.tensor(images, dtype=torch.float32) / 16, torch.tensor(labels)


def train(compression: Any, steps: int, rate: float = 0.1, momentum: float = 0.9, seed: int = 1) -> float:
    """The loss over all data at the end."""
    images, labels = digits()
    random = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=rate, momentum=momentum), model.named_parameters(), compression
    )
    for _ in range(steps):
        batch = torch.randint(len(labels), (BATCH,), generator=random)[hvd.rank() :: hvd.size()]
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images[batch]), labels[batch]).backward()
        optimizer.step()
    with torch.no_grad():
        loss = float(nn.functional.cross_entropy(model(images), labels))
    assert hvd.allgather(torch.tensor([loss])).tolist() == pytest.approx([loss] * hvd.size(), abs=0)
    return loss


def test_int8_reaches_the_loss_of_float32() -> None:
    plain = [train(Compression.none, 300, seed=seed) for seed in (1, 2)]
    small = [train(Compression.int8(), 300, seed=seed) for seed in (1, 2)]
    assert sum(small) == pytest.approx(sum(plain), rel=0.15), "two seeds differ by a quarter"


@pytest.mark.parametrize(
    "make",
    [lambda **more: Compression.topk(0.01, **more), lambda **more: Compression.powersgd(1, **more)],
    ids=["topk", "powersgd"],
)
def test_what_is_left_out_must_be_remembered(make: Any) -> None:
    plain = train(Compression.none, 300, momentum=0.0)
    remembering, forgetting = (train(make(error_feedback=each), 300, momentum=0.0) for each in (True, False))
    assert remembering < 1.5 * plain
    assert forgetting > 1.5 * remembering
