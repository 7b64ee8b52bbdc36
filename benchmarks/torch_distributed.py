"""torch.distributed with the backend "hvd" against Gloo: operations, DDP and tensor-parallel decoding.

    horovodrun -np 2 .venv/bin/python benchmarks/torch_distributed.py [--rounds 5] [--only all_reduce,ddp]

Both backends are groups of the same processes, and take turns: round by round, and in each round one after the other. A
sample repeats an operation for some 20 ms; its time is the mean of the slowest rank. The output has the medians of all
rounds and the ratio of the two medians (above 1: hvd is faster).
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import horovod.torch.distributed  # noqa: F401 - makes the backend "hvd" known

SAMPLE = 0.02  # seconds
SIZES = (4, 4 << 10, 256 << 10, 4 << 20, 64 << 20)
Step = Callable[[], object]
Prepare = Callable[[dist.ProcessGroup], Step]


@dataclass
class Case:
    name: str
    prepare: Prepare
    unit: str = "us"  # of the time of one step, or "steps/s"


def floats(size: int) -> torch.Tensor:
    return torch.ones(max(1, size // 4))


def all_reduce(size: int) -> Prepare:
    tensor = floats(size) * 0
    return lambda group: lambda: dist.all_reduce(tensor, group=group)


def all_reduce_future(size: int) -> Prepare:
    tensor = floats(size) * 0
    return lambda group: lambda: dist.all_reduce(tensor, group=group, async_op=True).get_future().wait()


def all_gather(size: int) -> Prepare:
    whole = floats(size)
    part = whole[: max(1, len(whole) // dist.get_world_size())].clone()
    output = torch.empty(len(part) * dist.get_world_size())
    return lambda group: lambda: dist.all_gather_into_tensor(output, part, group)


def reduce_scatter(size: int) -> Prepare:
    part = torch.empty(max(1, size // 4 // dist.get_world_size()))
    whole = torch.ones(len(part) * dist.get_world_size())
    return lambda group: lambda: dist.reduce_scatter_tensor(part, whole, group=group)


def send_recv(size: int) -> Prepare:
    tensor = floats(size)

    def prepare(group: dist.ProcessGroup) -> Step:
        def step() -> None:
            if dist.get_rank() == 0:
                dist.send(tensor, 1, group)
                dist.recv(tensor, 1, group)
            elif dist.get_rank() == 1:
                dist.recv(tensor, 0, group)
                dist.send(tensor, 0, group)

        return step

    return prepare


def ddp(layers: int, width: int) -> Prepare:
    def prepare(group: dist.ProcessGroup) -> Step:
        torch.manual_seed(1)
        net = DistributedDataParallel(
            nn.Sequential(*[nn.Linear(width, width) for _ in range(layers)]), process_group=group
        )
        optimizer = torch.optim.SGD(net.parameters(), lr=1e-4)
        inputs = torch.randn(4, width)

        def step() -> None:
            optimizer.zero_grad()
            net(inputs).sum().backward()
            optimizer.step()

        return step

    return prepare


def decoding(batch: int) -> Prepare:
    """One token of two tensor-parallel transformer layers: the projections of attention and those of the MLP."""
    hidden, share = 4096, 4096 // dist.get_world_size()

    def prepare(group: dist.ProcessGroup) -> Step:
        inputs = torch.randn(batch, hidden, dtype=torch.bfloat16)
        shapes = [(hidden, share), (share, hidden), (hidden, 4 * share), (4 * share, hidden)] * 2
        weights = [torch.randn(shape, dtype=torch.bfloat16) / 64 for shape in shapes]

        @torch.no_grad()
        def step() -> None:
            values = inputs
            for number in range(0, len(weights), 2):
                values = values @ weights[number] @ weights[number + 1]
                dist.all_reduce(values, group=group)

        return step

    return prepare


def cases() -> list[Case]:
    verbs = {
        "all_reduce": all_reduce,
        "all_reduce future": all_reduce_future,
        "all_gather_into_tensor": all_gather,
        "reduce_scatter_tensor": reduce_scatter,
        "send and recv": send_recv,
    }
    return [
        *(Case(f"{name} {size} B", verb(size)) for name, verb in verbs.items() for size in SIZES),
        Case("ddp 200 small layers", ddp(200, 16), "steps/s"),
        Case("ddp 25 M parameters", ddp(6, 2048), "steps/s"),
        *(Case(f"decoding, batch {batch}", decoding(batch)) for batch in (1, 16, 64)),
    ]


def seconds_of(step: Step, repeats: int, gloo: dist.ProcessGroup) -> float:
    dist.barrier(gloo)
    began = time.perf_counter()
    for _ in range(repeats):
        step()
    slowest = torch.tensor((time.perf_counter() - began) / repeats)
    dist.all_reduce(slowest, dist.ReduceOp.MAX, gloo)
    return float(slowest)


def measure(case: Case, groups: dict[str, dist.ProcessGroup], rounds: int) -> dict[str, float]:
    gloo = groups["gloo"]
    steps = {name: case.prepare(group) for name, group in groups.items()}
    repeats = {}
    for name, step in steps.items():
        seconds_of(step, 2, gloo)
        repeats[name] = max(2, int(SAMPLE / seconds_of(step, 3, gloo)))
    samples: dict[str, list[float]] = {name: [] for name in steps}
    for number in range(rounds):
        for name in list(steps) if number % 2 else reversed(list(steps)):
            samples[name].append(seconds_of(steps[name], repeats[name], gloo))
    return {name: statistics.median(times) for name, times in samples.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", default="", help="beginnings of names of cases, with commas between them")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("hvd")
    groups = {"gloo": dist.new_group(backend="gloo"), "hvd": dist.new_group(backend="hvd")}
    wanted = tuple(arguments.only.split(","))
    for case in cases():
        if not case.name.startswith(wanted):
            continue
        times = measure(case, groups, arguments.rounds)
        if dist.get_rank() == 0:
            show = {name: 1 / seconds if case.unit == "steps/s" else seconds * 1e6 for name, seconds in times.items()}
            ratio = times["gloo"] / times["hvd"]
            print(
                f"{case.name:<34} gloo {show['gloo']:>10.1f}  hvd {show['hvd']:>10.1f} {case.unit:<8} x{ratio:.1f}",
                flush=True,
            )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
