"""Training for long with PyTorch needs no more memory than training for a while."""

from __future__ import annotations

import os

import pytest
from ranks import run_ranks, say

pytest.importorskip("torch")


def ten_thousand_steps() -> None:
    import gc

    import torch

    import horovod.torch as hvd
    from horovod.torch.optimizer import DistributedOptimizer, ShardedOptimizer

    torch.set_num_threads(1)

    def memory() -> int:
        gc.collect()
        with open("/proc/self/statm") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def train(steps: int) -> None:
        for step in range(steps):
            optimizer.zero_grad(set_to_none=step % 2 == 0)
            model(inputs).square().sum().backward()
            optimizer.step()

    hvd.init()
    inputs = torch.ones(1, 30)
    for wrap, steps in ((DistributedOptimizer, 10_000), (ShardedOptimizer, 2_000)):
        model = torch.nn.Sequential(torch.nn.Linear(30, 30), torch.nn.Linear(30, 1))
        optimizer = wrap(torch.optim.SGD(model.parameters(), lr=1e-4), model.named_parameters())
        train(500)
        before = memory()
        train(steps)  # a leak of one small gradient in each would be 36 MB
        grown = memory() - before
        assert grown < 8 << 20, (wrap, grown)
    hvd.barrier()
    say("done")


def test_ten_thousand_steps() -> None:
    assert all(each.lines == ["done"] for each in run_ranks(2, ten_thousand_steps, limit=300))
