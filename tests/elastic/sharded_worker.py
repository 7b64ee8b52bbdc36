"""A training with ShardedOptimizer whose result is known: that of the plain optimizer after as many steps.

The gradients depend on the number of the step alone, so the size of the world makes no difference. Faults may also come
between the reduction of the gradients and the gathering of the parameters, when every rank has stepped its piece.
ELASTIC_TEST_STATE=own keeps the training in a state of the script's own, which does not know the optimizer.
"""

from __future__ import annotations

import os
import zlib
from typing import Any

import torch
from points import STOP, begin, point, tell

import horovod.torch as hvd
from horovod.common.elastic import ObjectState
from horovod.torch.elastic import TorchState
from horovod.torch.optimizer import shards

shards.BUCKET_BYTES = 100  # several buckets


class Adam(torch.optim.Adam):
    """Faults may be placed in its steps."""

    def step(self, closure: Any = None) -> Any:
        point("collective", hvd.rank())
        return super().step(closure)


class Own(ObjectState):
    """Knows the model alone. Commits happen after whole steps, and no worker is killed here: only hosts change."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.model = model
        super().__init__(hvd.broadcast_object, hvd.rank, batch=0)

    def sync(self) -> None:
        hvd.broadcast_parameters(self.model.state_dict(), self.sync_root)
        super().sync()


def make_model() -> torch.nn.Module:
    torch.manual_seed(5)
    return torch.nn.Sequential(torch.nn.Linear(7, 5), torch.nn.Linear(5, 3))


def set_gradients(model: torch.nn.Module, number: int) -> None:
    for place, each in enumerate(model.parameters()):
        each.grad = torch.cos(torch.arange(each.numel()).view_as(each) + 0.1 * number + place)


def check(model: torch.nn.Module, steps: int) -> None:
    """Compare with the plain optimizer."""
    twin = make_model()
    plain = torch.optim.Adam(twin.parameters(), lr=0.01)
    for number in range(steps):
        set_gradients(twin, number)
        plain.step()
    for mine, expected in zip(model.parameters(), twin.parameters(), strict=True):
        if not torch.allclose(mine, expected, rtol=1e-4, atol=1e-5):
            tell("wrong", rank=hvd.rank(), steps=steps, by=float((mine - expected).abs().max()))


@hvd.elastic.run
def train(state: Any, optimizer: hvd.ShardedOptimizer) -> None:
    is_new_world = True
    stop = False
    while not stop:
        set_gradients(state.model, state.batch)
        optimizer.step()
        state.batch += 1
        if is_new_world:
            check(state.model, state.batch)
            host = os.environ.get("HOROVOD_HOSTNAME", "")
            tell("going", rank=hvd.rank(), size=hvd.size(), epoch=state.batch, host=host)
            is_new_world = False
        point("negotiation", hvd.rank())
        stop = bool(hvd.allreduce(torch.tensor(float(STOP.exists())), name="stop", op=hvd.Sum))
        state.commit()


def main() -> None:
    begin()
    torch.set_num_threads(1)
    hvd.init()
    model = make_model()
    optimizer = hvd.ShardedOptimizer(Adam(model.parameters(), lr=0.01), elementwise=True)
    own = os.environ.get("ELASTIC_TEST_STATE") == "own"
    state: Any = Own(model) if own else TorchState(model, optimizer, batch=0)
    train(state, optimizer)
    check(model, state.batch)
    weights = b"".join(each.detach().numpy().tobytes() for each in model.parameters())
    tell("done", rank=hvd.rank(), size=hvd.size(), epoch=state.batch, digest=zlib.crc32(weights))


if __name__ == "__main__":
    main()
