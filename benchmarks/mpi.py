#!/usr/bin/env python3
"""What does Horovod cost on top of MPI, and what does its own engine reach under the same mpirun?

python benchmarks/mpi.py [--np 2,4] [--rounds 7] [--milliseconds 15] [--bytes 4,64,...]

Allreduce of float32, in place, for Open MPI and MPICH, whichever is installed. `plain` is MPI_Allreduce alone; `mpi` is
Horovod's C ABI with HOROVOD_CPU_OPERATIONS=mpi, which negotiates and then calls MPI_Iallreduce; `engine` is the same
program with the data by shared memory, MPI being the controller. Every round runs each of them once, in turn; a figure
is the median of the rounds, in microseconds, with the quartiles. `over plain` is `mpi` less `plain`: the goal is 5 us
for small tensors and 5 % for large ones. A difference within the spread of both is no difference.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile

from machine import BIN, CPUS, ROOT

sys.path.insert(0, str(ROOT / "tests/python/mpi"))
from flavours import FLAVOURS, Flavour, carried_by

SIZES = [4, 64, 1 << 10, 16 << 10, 256 << 10, 4 << 20, 64 << 20]
LARGE = 1 << 20  # from here on the goal is a percentage
MEMORY = "/dev/shm"
LIMIT = 300
# The program measures as a rank among others when it is told so; Horovod itself asks MPI.
RANK = (
    "export HOROVOD_RANK=${OMPI_COMM_WORLD_RANK:-$PMI_RANK} HOROVOD_SIZE=${OMPI_COMM_WORLD_SIZE:-$PMI_SIZE}; "
    'exec "$0" "$@"'
)
KINDS = ("plain", "mpi", "engine")


def command(flavour: Flavour, kind: str, ranks: int) -> list[str]:
    bound = ranks <= len(CPUS)
    open_mpi = ["--bind-to", "core"] if bound else ["--oversubscribe", "--bind-to", "none"]
    options = {"openmpi": open_mpi, "mpich": ["-bind-to", "core"] if bound else []}
    program = [str(BIN / f"bench_{flavour.name}")] if kind == "plain" else ["sh", "-c", RANK, str(BIN / "bench_capi")]
    launcher = [flavour.program("mpirun") or "", *options[flavour.name]]
    return [*launcher, "-np", str(ranks), *program]


def measure(flavour: Flavour, kind: str, ranks: int, milliseconds: float, sizes: list[int]) -> dict[int, float]:
    """Microseconds of each size, the median of a few samples of one run."""
    cases = f"allreduce:{','.join(map(str, sizes))}"
    with tempfile.TemporaryDirectory(prefix="horovod-bench-", dir=MEMORY) as directory:
        env = flavour.environment() | carried_by(kind) | {"BENCH_BLOCK": f"{directory}/block", "BENCH_PIN": "0"}
        del env["OMPI_MCA_mpi_yield_when_idle"]
        env["BENCH_CPUS"] = ",".join(map(str, CPUS))
        line = [*command(flavour, kind, ranks), str(ranks), "3", str(milliseconds), cases]
        run = subprocess.run(line, env=env, capture_output=True, text=True, timeout=LIMIT)
    if run.returncode != 0 or "WRONG" in run.stdout:
        raise RuntimeError(f"{flavour.name} {kind}, {ranks} ranks:\n{run.stdout[-500:]}\n{run.stderr[-2000:]}")
    found: dict[int, list[float]] = {}
    for fields in (row.split("\t") for row in run.stdout.splitlines() if row.startswith("allreduce\t")):
        found.setdefault(int(fields[1]), []).append(float(fields[3]))
    return {size: statistics.median(samples) for size, samples in found.items()}


def shown(taken: list[float]) -> str:
    if len(taken) < 2:
        return f"{taken[0]:10.2f}"
    low, middle, high = statistics.quantiles(taken, n=4)
    return f"{middle:10.2f} [{low:.2f} - {high:.2f}]"


def report(flavour: Flavour, ranks: int, times: dict[str, dict[int, list[float]]]) -> None:
    print(f"\n{flavour.version}, {ranks} ranks, microseconds\n\n| bytes | plain | mpi | engine | mpi over plain |")
    print("|---|---|---|---|---|")
    for size in times["plain"]:
        plain, ours = (statistics.median(times[kind][size]) for kind in ("plain", "mpi"))
        over = f"{(ours / plain - 1) * 100:+.1f} %" if size >= LARGE else f"{ours - plain:+.2f} us"
        print(f"| {size} | {' | '.join(shown(times[kind][size]).strip() for kind in KINDS)} | {over} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--np", default="2,4")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--milliseconds", type=float, default=15)
    parser.add_argument("--bytes", default=",".join(map(str, SIZES)))
    options = parser.parse_args()
    sizes = [int(size) for size in options.bytes.split(",")]
    targets = ["bench_capi", *(f"bench_with_{name}" for name, each in FLAVOURS.items() if not each.why_not())]
    subprocess.run(["cmake", "--build", str(BIN.parent), "--target", *targets], check=True, stdout=subprocess.DEVNULL)
    print(f"load {os.getloadavg()[0]:.1f} on {len(CPUS)} cores")
    for flavour in FLAVOURS.values():
        if reason := flavour.why_not():
            print(reason)
            continue
        for ranks in map(int, options.np.split(",")):
            times: dict[str, dict[int, list[float]]] = {kind: {size: [] for size in sizes} for kind in KINDS}
            for number in range(options.rounds):
                for kind in KINDS if number % 2 == 0 else KINDS[::-1]:
                    for size, taken in measure(flavour, kind, ranks, options.milliseconds, sizes).items():
                        times[kind][size].append(taken)
            report(flavour, ranks, times)


if __name__ == "__main__":
    main()
