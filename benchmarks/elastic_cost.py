"""Worker of elastic.py: what elastic calls add to a step. Rank 0 prints medians as JSON, in milliseconds.

A step is a computation of fixed work and an allreduce of its gradients. Blocks of bare steps, of steps followed by
`check_host_updates()` and of steps followed by `commit()` take turns, so that all see the same machine; what counts is
the difference to the bare block beside it.
"""

from __future__ import annotations

import json
import statistics
import time
from typing import Any

import torch

import horovod.torch as hvd
from horovod.torch.elastic import TorchState

BLOCKS, STEPS = 15, 5
SECONDS_OF_WORK = 0.05
KINDS = ("bare", "checked", "committed")


def main() -> None:
    torch.set_num_threads(1)
    hvd.init()
    model = torch.nn.Sequential(*(torch.nn.Linear(512, 512) for _ in range(4)))  # a million parameters
    optimizer = torch.optim.Adam(model.parameters())
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    state: Any = TorchState(model, optimizer, batch=0)
    factor = torch.rand(256, 256)
    began = time.perf_counter()
    for _ in range(50):
        factor @ factor
    rounds = max(1, round(SECONDS_OF_WORK / ((time.perf_counter() - began) / 50)))
    gradient = torch.zeros(1_000_000)

    def step(state: Any, kind: str) -> None:
        for _ in range(rounds):
            factor @ factor
        hvd.allreduce_(gradient, name="gradient")
        state.batch += 1
        if kind == "checked":
            state.check_host_updates()
        elif kind == "committed":
            state.commit()

    @hvd.elastic.run
    def measure(state: Any) -> dict[str, list[float]]:
        times: dict[str, list[float]] = {kind: [] for kind in (*KINDS, "copy")}
        for _ in range(BLOCKS):
            for kind in KINDS:
                hvd.barrier()
                began = time.perf_counter()
                for _ in range(STEPS):
                    step(state, kind)
                times[kind].append((time.perf_counter() - began) / STEPS)
            times["copy"].append(state.commit_seconds)
        return times

    times = measure(state)
    if hvd.rank() == 0:
        more = {
            f"{kind}_more": [each - bare for each, bare in zip(times[kind], times["bare"], strict=True)]
            for kind in KINDS[1:]
        }
        print(json.dumps({name: statistics.median(taken) * 1e3 for name, taken in (times | more).items()}), flush=True)


if __name__ == "__main__":
    main()
