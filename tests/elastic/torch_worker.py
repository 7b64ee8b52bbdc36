"""The training of worker.py with PyTorch: TorchState, ElasticSampler and the loader keep the account.

The model has one weight per sample, and its "gradient" is minus the number of times that the sample is in the batch, so
that a step of SGD with learning rate 1 counts. Momentum buffers and a scheduler travel along.
"""

from __future__ import annotations

import os
import sys
import zlib
from typing import Any

import torch
from points import STOP, begin, point, tell

import horovod.torch as hvd
from horovod.torch.elastic import ElasticDataLoader, ElasticSampler, TorchState

SAMPLES = int(os.environ.get("ELASTIC_TEST_SAMPLES", "61"))


class Training(TorchState):
    """Faults may be placed in its commits and syncs."""

    def save(self) -> None:
        point("commit", hvd.rank())
        super().save()

    def sync(self) -> None:
        point("sync", hvd.rank())
        super().sync()


def count(batch: torch.Tensor | None) -> torch.Tensor:
    used = torch.zeros(SAMPLES + 1)
    if batch is not None:
        used[batch] = 1
    used[SAMPLES] = STOP.exists()
    return used


def check(state: Any) -> None:
    weights = state.model.weight.detach()[0, :SAMPLES]
    wrong = (weights != state.epoch + 1).nonzero().flatten().tolist()
    if wrong:
        tell("wrong", rank=hvd.rank(), samples=wrong, epoch=state.epoch)
        print(f"samples {wrong} were used {weights[wrong]} times by epoch {state.epoch}", file=sys.stderr)
        os._exit(3)


@hvd.elastic.run
def train(state: Any, loader: ElasticDataLoader) -> None:
    is_new_world = True
    stop = False
    while not stop:
        for batch in loader:
            point("negotiation", hvd.rank())
            handle = hvd.allreduce_async(count(batch), name="gradient", op=hvd.Sum)
            point("collective", hvd.rank())
            total = hvd.synchronize(handle)
            stop = stop or bool(total[SAMPLES])
            total[SAMPLES] = 0
            state.model.weight.grad = -total[None]
            state.optimizer.step()
            if is_new_world:
                host = os.environ.get("HOROVOD_HOSTNAME", "")
                tell("going", rank=hvd.rank(), size=hvd.size(), epoch=state.epoch, host=host)
                is_new_world = False
            if len(loader) > 0:
                state.commit()
        check(state)
        state.epoch += 1
        state.schedule.step()
        state.sampler.set_epoch(state.epoch)
        state.commit()


def main() -> None:
    begin()
    torch.set_num_threads(1)
    point("init")
    hvd.init()
    model = torch.nn.Linear(SAMPLES + 1, 1, bias=False)
    torch.nn.init.zeros_(model.weight)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: 1.0)
    sampler = ElasticSampler(range(SAMPLES), fill_up=False)
    loader = ElasticDataLoader(torch.arange(SAMPLES), 3, sampler)
    state: Any = Training(model, optimizer, schedule=schedule, sampler=sampler, epoch=0)
    train(state, loader)
    point("exit", hvd.rank())
    assert schedule.last_epoch == state.epoch
    digest = zlib.crc32(model.weight.detach().numpy().tobytes())
    tell("done", rank=hvd.rank(), size=hvd.size(), epoch=state.epoch, digest=digest, commit=state.commit_seconds)


if __name__ == "__main__":
    main()
