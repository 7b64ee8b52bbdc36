#!/usr/bin/env python3
"""What does Horovod cost on top of MPI, and what does its own engine reach under the same mpirun?

python benchmarks/mpi.py [--np 2,4] [--rounds 7] [--milliseconds 15] [--bytes 4,64,...]

Allreduce of float32, in place, for Open MPI and MPICH, whichever is installed. `plain` is MPI_Allreduce alone; `wait`
is MPI_Iallreduce and MPI_Wait alone; `mpi` is Horovod's C ABI with HOROVOD_CPU_OPERATIONS=mpi, which negotiates and
then calls MPI_Iallreduce; `engine` is the same program with the data by shared memory, MPI being the controller.
Every round runs each of them once, in turn; a figure is the median of the samples, in microseconds, with the
quartiles, taken while the cores were equally far from each other (README.md), in the state of which there are most.
`over` is `mpi` less `plain` or `wait`: the goal is 5 us for small tensors and 5 % for large ones. What `wait` takes
longer than `plain` is how the MPI makes calls that do not block. A difference within the spread of both is no
difference.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile

from machine import BIN, CPUS, ROOT
from samples import STATES, Sample, parse

sys.path.insert(0, str(ROOT / "tests/python/mpi"))
from flavours import FLAVOURS, Flavour, carried_by

SIZES = [4, 64, 1 << 10, 16 << 10, 256 << 10, 4 << 20, 64 << 20]
LARGE = 1 << 20  # from here on the goal is a percentage
MEMORY = "/dev/shm"
LIMIT = 300
# With this variable the program runs as one of several ranks; Horovod itself asks MPI.
RANK = (
    "export HOROVOD_RANK=${OMPI_COMM_WORLD_RANK:-$PMI_RANK} HOROVOD_SIZE=${OMPI_COMM_WORLD_SIZE:-$PMI_SIZE}; "
    'exec "$0" "$@"'
)
KINDS = ("plain", "wait", "mpi", "engine")
ALONE = KINDS[:2]  # without Horovod
SAMPLES = 3  # of each run


def command(flavour: Flavour, kind: str, ranks: int) -> list[str]:
    bound = ranks <= len(CPUS)
    open_mpi = ["--bind-to", "core"] if bound else ["--oversubscribe", "--bind-to", "none"]
    options = {"openmpi": open_mpi, "mpich": ["-bind-to", "core"] if bound else []}
    program = [str(BIN / f"bench_{flavour.name}")] if kind in ALONE else ["sh", "-c", RANK, str(BIN / "bench_capi")]
    launcher = [flavour.program("mpirun") or "", *options[flavour.name]]
    return [*launcher, "-np", str(ranks), *program]


def measure(flavour: Flavour, kind: str, ranks: int, milliseconds: float, sizes: list[int]) -> list[Sample]:
    case = f"{'async' if kind == 'wait' else 'allreduce'}:{','.join(map(str, sizes))}"
    with tempfile.TemporaryDirectory(prefix="horovod-bench-", dir=MEMORY) as directory:
        env = flavour.environment() | carried_by(kind) | {"BENCH_BLOCK": f"{directory}/block", "BENCH_PIN": "0"}
        del env["OMPI_MCA_mpi_yield_when_idle"]
        env["BENCH_CPUS"] = ",".join(map(str, CPUS))
        line = [*command(flavour, kind, ranks), str(ranks), str(SAMPLES), str(milliseconds), case]
        run = subprocess.run(line, env=env, capture_output=True, text=True, timeout=LIMIT)
    if run.returncode != 0 or "WRONG" in run.stdout:
        raise RuntimeError(f"{flavour.name} {kind}, {ranks} ranks:\n{run.stdout[-500:]}\n{run.stderr[-2000:]}")
    begin = case.partition(":")[0] + "\t"
    return [parse(row, 0, "shm", kind) for row in run.stdout.splitlines() if row.startswith(begin)]


def in_one_state(samples: list[Sample]) -> tuple[str, dict[str, list[float]]]:
    """Of one size: the times of each kind in the state in which all kinds have the most."""
    found = {
        state: {kind: [each.us for each in samples if (each.program, each.state) == (kind, state)] for kind in KINDS}
        for state in STATES
    }
    state = max(STATES, key=lambda state: min(len(times) for times in found[state].values()))
    return state, found[state]


def shown(taken: list[float]) -> str:
    if len(taken) < 2:
        return "-" if not taken else f"{taken[0]:.2f}"
    low, middle, high = statistics.quantiles(taken, n=4)
    return f"{middle:.2f} [{low:.2f} - {high:.2f}]"


def over(ours: list[float], theirs: list[float], size: int) -> str:
    if not ours or not theirs:
        return "-"
    mine, other = statistics.median(ours), statistics.median(theirs)
    return f"{(mine / other - 1) * 100:+.1f} %" if size >= LARGE else f"{mine - other:+.2f} us"


def report(flavour: Flavour, ranks: int, samples: list[Sample]) -> None:
    print(f"\n{flavour.version}, {ranks} ranks, microseconds\n")
    print(f"| bytes | cores | {' | '.join(KINDS)} | over plain | over wait |")
    print(f"|{'---|' * (len(KINDS) + 4)}")
    for size in sorted({each.bytes for each in samples}):
        state, times = in_one_state([each for each in samples if each.bytes == size])
        columns = [shown(times[kind]) for kind in KINDS]
        columns += [over(times["mpi"], times[kind], size) for kind in ALONE]
        print(f"| {size} | {state} | {' | '.join(columns)} |", flush=True)


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
            samples: list[Sample] = []
            for number in range(options.rounds):
                for kind in KINDS if number % 2 == 0 else KINDS[::-1]:
                    samples += measure(flavour, kind, ranks, options.milliseconds, sizes)
            report(flavour, ranks, samples)


if __name__ == "__main__":
    main()
