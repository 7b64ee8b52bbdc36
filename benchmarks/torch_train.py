#!/usr/bin/env python3
"""Training and collectives with PyTorch: horovod.torch beside DistributedDataParallel over Gloo on the same torch, and
beside as many processes that do not communicate.

    python benchmarks/torch_train.py [--np 2,4] [--only train,allreduce,overhead,bytes] [--rounds 12]

Samples alternate between the systems (torch_teams.py); every ratio is one of samples taken one after the other, and the
table shows their median and quartiles. The exit code is 1 when a system of ours failed or computed something wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import time
from pathlib import Path

import torch_report
from machine import ROOT
from torch_overhead import compressed_bytes, import_ratios, matmul_ratios
from torch_report import Case, Samples
from torch_teams import Team, TeamError

PARTS = ("train", "allreduce", "overhead", "bytes")
ALLREDUCE_BYTES = [4**k for k in range(1, 14)]  # 4 B .. 64 MiB
ALONE, OURS, DDP, DDP_VIEW = "alone", "horovod", "ddp", "ddp view"


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--np", default="2,4", help="numbers of ranks (default: %(default)s)")
    parser.add_argument("--only", default=",".join(PARTS), help="parts (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=12, help="samples of each system (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=0.6, help="of a sample of training (default: %(default)s)")
    parser.add_argument("--compression", default="", help="also train with these, such as bf16,int8")
    parser.add_argument("--out", type=Path, help="directory (default: benchmarks/results/<time>-torch)")
    return parser.parse_args()


def calibrate(team: Team, seconds: float) -> int:
    """How often the prepared operation runs in that time, about."""
    count = 1
    while True:
        taken = max(answer["seconds"] for answer in team.tell(f"run {count}"))
        if taken >= seconds / 4 or count > 1 << 20:
            return max(1, round(count * seconds / taken))
        count *= 4


def check(case: Case, learnt: dict[str, list[float]]) -> None:
    """All ranks of a system have learnt the same; compressed gradients need only lead near to the others."""
    for system, values in learnt.items():
        if system != ALONE and len(set(values)) != 1:
            raise TeamError(f"{system}, {case.text()}: the ranks have learnt different weights: {values}")
    if abs(learnt[OURS][0] / learnt[DDP][0] - 1) > 1e-4:
        raise TeamError(f"{case.text()}: {OURS} and {DDP} have learnt different weights: {learnt}")


def measure(teams: list[Team], case: Case, rounds: int, seconds: float, samples: Samples) -> None:
    for team in teams:
        team.tell(f"prepare {case.kind} {case.what}")
    if case.kind == "train":  # the same number of steps for all, so that all learn the same
        counts = dict.fromkeys([team.system for team in teams], calibrate(teams[0], seconds))
    else:
        counts = {team.system: calibrate(team, seconds) for team in teams}
    learnt: dict[str, list[float]] = {}
    for number in range(rounds + 1):
        shift = number % len(teams)
        for team in teams[shift:] + teams[:shift]:  # the order changes
            answers = team.tell(f"run {counts[team.system]}")
            slowest = max(answer["seconds"] for answer in answers)
            if number > 0:  # the first round warms up
                samples.add(case, team.system, slowest / counts[team.system])
            learnt[team.system] = [answer["learnt"] for answer in answers]
    if case.kind == "train":
        check(case, learnt)


def measure_part(part: str, ranks: int, options: argparse.Namespace, samples: Samples) -> None:
    train = part == "train"
    systems = [ALONE, OURS, DDP, DDP_VIEW] if train else [OURS, DDP]
    systems += [f"{OURS} {name}" for name in options.compression.split(",") if name and train]
    whats = ["small", "large"] if train else [str(size) for size in ALLREDUCE_BYTES]
    with contextlib.ExitStack() as stack:
        teams = [stack.enter_context(Team(system, ranks)) for system in systems]
        for team in teams:
            team.answers()
        for what in whats:
            measure(teams, Case(ranks, part, what), options.rounds, options.seconds / (1 if train else 10), samples)


def main() -> int:
    options = parse_arguments()
    only = set(options.only.split(","))
    if unknown := only - set(PARTS):
        sys.exit(f"not a part: {', '.join(sorted(unknown))}")
    load = os.getloadavg()[0]
    if load > 0.5:
        print(f"the machine is busy (load {load:.1f}): expect noise, compare nothing")
    out = options.out or ROOT / "benchmarks" / "results" / time.strftime("%Y%m%d-%H%M%S-torch")
    out.mkdir(parents=True, exist_ok=True)
    samples = Samples()
    failures = []
    for ranks in (int(number) for number in options.np.split(",")):
        for part in ("train", "allreduce"):
            if part in only:
                print(f"measuring {part} with {ranks} ranks", flush=True)
                try:
                    measure_part(part, ranks, options, samples)
                except TeamError as error:
                    failures.append(str(error))
    if "overhead" in only:
        print("measuring imports and matrix products", flush=True)
        samples.imports, samples.import_seconds = import_ratios(options.rounds, 2)
        samples.matmul = matmul_ratios(options.rounds * 2, 2)
    if "bytes" in only:
        samples.bytes_sent = compressed_bytes(["fp16", "bf16", "int8"])
    text = torch_report.text(samples)
    print(text)
    for failure in failures:
        print(f"failed: {failure}")
    facts = {"load": load, "rounds": options.rounds, "failures": failures}
    (out / "torch.json").write_text(json.dumps(torch_report.document(samples) | facts, indent=1))
    (out / "torch.md").write_text(text + "\n")
    torch_report.draw(samples, out / "torch.png")
    print(f"written to {out}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
