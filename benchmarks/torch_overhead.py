"""What horovod.torch costs a program that does not communicate: the time to import and initialise it, and what a
running engine takes from a program that only computes. And how many bytes a compressed gradient takes on a network."""

from __future__ import annotations

import secrets
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence

from torch_teams import environments

IMPORTS = {
    "torch": "import torch",
    "horovod": "import torch; import horovod.torch as hvd; hvd.init()",
}
SAY_WHEN = "\nimport time; print(time.monotonic(), flush=True)"

# Initialised and shut down in turn, in the same process: neither memory nor cores change in between.
MATMUL = """
import statistics, sys, time
import torch
import horovod.torch as hvd

matrix = torch.randn(512, 512)
repeats = 8

def sample():
    began = time.perf_counter()
    for _ in range(repeats):
        torch.mm(matrix, matrix)
    return time.perf_counter() - began

while sample() < 0.05:
    repeats *= 2
ratios = []
for number in range(int(sys.argv[1])):
    times = {}
    for running in ((False, True) if number % 2 else (True, False)):
        if running:
            hvd.init()
        sample()
        times[running] = statistics.median(sample() for _ in range(5))
        if running:
            hvd.shutdown()
    ratios.append(times[True] / times[False])
print(*ratios)
"""


def _run(code: str, ranks: int, *arguments: str, changes: Sequence[dict[str, str]] = ()) -> list[str]:
    """What the ranks say that run this code at the same time, each with its changes of the environment."""
    command = [sys.executable, "-c", code, *arguments]
    processes = [
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        for environment in _changed(environments(ranks), changes)
    ]
    said = [process.communicate(timeout=300)[0] for process in processes]
    if any(process.returncode for process in processes):
        raise RuntimeError(f"failed: {code.strip()}")
    return said


def _changed(all_ranks: list[dict[str, str]], changes: Sequence[dict[str, str]]) -> list[dict[str, str]]:
    return [before | change for before, change in zip(all_ranks, changes, strict=True)] if changes else all_ranks


def import_ratios(rounds: int, ranks: int, imports: dict[str, str] = IMPORTS) -> tuple[list[float], dict[str, float]]:
    """Per round, how many times as long the slowest rank needs with Horovod; and the median seconds of both.

    `imports`: the code without Horovod, and the code with it, which is called horovod.
    """
    seconds: dict[str, list[float]] = {name: [] for name in imports}
    for number in range(rounds + 1):
        for name, code in imports.items():
            began = time.monotonic()
            slowest = max(float(said) for said in _run(code + SAY_WHEN, ranks)) - began
            if number > 0:  # the first reads the files from the disk
                seconds[name].append(slowest)
    theirs = next(iter(imports))
    ratios = [ours / alone for ours, alone in zip(seconds["horovod"], seconds[theirs], strict=True)]
    return ratios, {name: statistics.median(values) for name, values in seconds.items()}


def matmul_ratios(rounds: int, ranks: int) -> list[float]:
    """Per round and rank, how many times as long matrix products take while Horovod is initialised."""
    return [float(ratio) for said in _run(MATMUL, ranks, str(rounds)) for ratio in said.split()]


# Allreduce between two ranks that are configured as separate hosts, so that all bytes go over the loopback interface.
BYTES = """
import pathlib
import torch
import horovod.torch as hvd

hvd.init()
gradient = torch.randn(1 << 22)

def sent():
    counters = pathlib.Path("/proc/net/dev").read_text().split("lo:")[1]
    return int(counters.split()[8])

for name in NAMES:
    compression = getattr(hvd.Compression, name)
    for number in range(6):
        if number == 1:
            hvd.barrier()
            before = sent()
        hvd.allreduce(gradient, name=name, compression=compression, op=hvd.Average)
    hvd.barrier()
    if hvd.rank() == 0:
        print(name, (sent() - before) / 5)
hvd.shutdown()
"""


def compressed_bytes(names: list[str]) -> dict[str, float]:
    """Bytes that two hosts send each other for an allreduce of 16 MiB, headers included, by compression."""
    code = BYTES.replace("NAMES", repr(["none", *names]))
    places = [{"HOROVOD_HOSTNAME": f"host{rank}", "HOROVOD_CROSS_RANK": str(rank)} for rank in range(2)]
    shared = {"HOROVOD_LOCAL_RANK": "0", "HOROVOD_LOCAL_SIZE": "1", "HOROVOD_CROSS_SIZE": "2"}
    shared |= {"HOROVOD_GLOO_IFACE": "lo", "_HOROVOD_SECRET_KEY": secrets.token_hex(32)}
    lines = "".join(_run(code, 2, changes=[shared | place for place in places])).splitlines()
    return {name: float(value) for name, value in (line.split() for line in lines)}
