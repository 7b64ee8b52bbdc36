#!/usr/bin/env python3
"""How long a launcher needs to start ranks that do nothing and to see them end: horovodrun beside mpirun and torchrun.

python benchmarks/startup.py [-np 4] [--rounds 20] [--seconds 30]

Every round runs each launcher once; one that has taken `--seconds` in all leaves after the fifth round. Launchers that
are not installed are left out; torchrun is looked for in .venv first (requirements/torch.txt). Prints milliseconds,
median and quartiles, how many times as long as horovodrun each takes, and the number of rounds.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import time

from machine import ROOT

BIN = ROOT / ".venv" / "bin"
LEAST_ROUNDS = 5


def launchers(ranks: int) -> dict[str, list[str]]:
    """The command of each that is there, with its path."""
    count = str(ranks)
    known = {
        "horovodrun": [str(BIN / "horovodrun"), "-np", count, "true"],
        "Open MPI": ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-np", count, "true"],
        "MPICH": ["mpirun.mpich", "-np", count, "true"],
        "torchrun": ["torchrun", "--nproc-per-node", count, "--no-python", "true"],
    }
    places = f"{BIN}{os.pathsep}{os.environ['PATH']}"
    found = {name: shutil.which(command[0], path=places) for name, command in known.items()}
    return {name: [path, *known[name][1:]] for name, path in found.items() if path}


def milliseconds(command: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return (time.perf_counter() - began) * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-np", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=30)
    options = parser.parse_args()
    commands = launchers(options.np)
    times: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(options.rounds):
        for name, command in commands.items():
            if len(times[name]) < LEAST_ROUNDS or sum(times[name]) < options.seconds * 1e3:
                times[name].append(milliseconds(command))
    ours = statistics.median(times["horovodrun"])
    for name, taken in times.items():
        low, middle, high = statistics.quantiles(taken, n=4)
        print(f"{name:12} {middle:8.1f} ms  [{low:.1f} - {high:.1f}]  {middle / ours:6.1f}x  {len(taken)} rounds")


if __name__ == "__main__":
    main()
