#!/usr/bin/env python3
"""Training with TensorFlow: horovod.tensorflow beside MultiWorkerMirroredStrategy on the same TensorFlow, and beside as
many processes that do not communicate; and what `import horovod.tensorflow` adds to `import tensorflow`.

    python benchmarks/tensorflow_train.py [--np 2] [--only train,import] [--rounds 12]

Samples alternate between the systems (torch_teams.py); every ratio is one of samples taken one after the other, and the
table shows their median and quartiles. The exit code is 1 when a system of ours failed or computed something wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import sys
import time
from dataclasses import asdict
from pathlib import Path

from machine import ROOT
from report import machine, table
from torch_overhead import import_ratios
from torch_report import Case, Ratio, Samples, Verdict
from torch_teams import Team, TeamError, free_port
from torch_train import calibrate

PARTS = ("train", "import")
ALONE, OURS, MIRRORED = "alone", "horovod", "mirrored"
RANK_PROGRAM = ROOT / "benchmarks" / "tensorflow_rank.py"
IMPORTS = {"tensorflow": "import tensorflow", "horovod": "import tensorflow; import horovod.tensorflow"}


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--np", default="2", help="numbers of ranks (default: %(default)s)")
    parser.add_argument("--only", default=",".join(PARTS), help="parts (default: %(default)s)")
    parser.add_argument("--models", default="small,large", help="models (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=12, help="samples of each system (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=0.6, help="of a sample of training (default: %(default)s)")
    parser.add_argument("--groups", default="", help="also train with gradients in so many groups, such as 1,4")
    parser.add_argument("--out", type=Path, help="directory (default: benchmarks/results/<time>-tensorflow)")
    return parser.parse_args()


def check(case: Case, learnt: dict[str, list[float]]) -> None:
    """All ranks of a system have learnt the same, and both systems nearly the same."""
    for system in learnt.keys() - {ALONE}:
        if len(set(learnt[system])) != 1:
            raise TeamError(f"{system}, {case.text()}: the ranks have learnt different weights: {learnt[system]}")
    if abs(learnt[OURS][0] / learnt[MIRRORED][0] - 1) > 1e-4:
        raise TeamError(f"{case.text()}: {OURS} and {MIRRORED} have learnt different weights: {learnt}")


def measure(teams: list[Team], case: Case, rounds: int, seconds: float, samples: Samples) -> None:
    for team in teams:
        team.tell(f"prepare {case.kind} {case.what}")
    count = calibrate(teams[0], seconds)
    for team in teams[1:]:  # as many steps as the first has taken, so that all learn the same
        team.tell(f"run {count}")
    teams[0].tell(f"run {count}")
    learnt: dict[str, list[float]] = {}
    for number in range(rounds):
        shift = number % len(teams)
        for team in teams[shift:] + teams[:shift]:  # the order changes
            answers = team.tell(f"run {count}")
            samples.add(case, team.system, max(answer["seconds"] for answer in answers) / count)
            learnt[team.system] = [answer["learnt"] for answer in answers]
    check(case, learnt)


def train(ranks: int, options: argparse.Namespace, samples: Samples) -> None:
    ports = ",".join(str(free_port()) for _ in range(ranks))
    shared = {"WORKER_PORTS": ports, "TF_CPP_MIN_LOG_LEVEL": "3"}
    with contextlib.ExitStack() as stack:
        systems = [ALONE, OURS, *(f"{OURS} {number}" for number in options.groups.split(",") if number), MIRRORED]
        teams = [stack.enter_context(Team(system, ranks, RANK_PROGRAM, shared)) for system in systems]
        for team in teams:
            team.answers()
        for model in options.models.split(","):
            measure(teams, Case(ranks, "train", model), options.rounds, options.seconds, samples)


def judge(samples: Samples) -> list[Verdict]:
    verdicts = []
    for case in samples.cases("train"):
        against = samples.ratio(case, MIRRORED, OURS)
        goal = 1.2 if case.what == "small" else 1.0
        title = f"{case.text()}: steps/s against MultiWorkerMirroredStrategy"
        verdicts.append(Verdict(title, against.median, against.text(), f">= {goal}", against.median >= goal))
        if case.what == "large":
            share = samples.ratio(case, ALONE, OURS)
            title = f"{case.text()}: efficiency"
            verdicts.append(Verdict(title, share.median, share.text(), ">= 0.85", share.median >= 0.85))
    if samples.imports:
        ratio = Ratio.of(samples.imports)
        title = "import horovod.tensorflow against import tensorflow"
        verdicts.append(Verdict(title, ratio.median, ratio.text(), "<= 1.10", ratio.median <= 1.10))
    return verdicts


def text(samples: Samples) -> str:
    rows = []
    systems = samples.systems("train")
    ours = [system for system in systems if system.startswith(OURS)]
    for case in samples.cases("train"):
        rates = [f"{1 / statistics.median(samples.seconds[case, each]):.2f}" for each in systems]
        against = [samples.ratio(case, MIRRORED, each).text() for each in ours]
        shares = [samples.ratio(case, ALONE, each).text() for each in [*ours, MIRRORED]]
        rows.append([case.what, str(case.ranks), *rates, *against, *shares])
    parts = ["## TensorFlow\n"]
    if rows:
        head = ["model", "ranks", *(f"{each} steps/s" for each in systems), *(f"{each} x {MIRRORED}" for each in ours)]
        parts += [table([*head, *(f"{each} x {ALONE}" for each in [*ours, MIRRORED])], rows), ""]
    rows = [[v.title, v.spread, v.bar, "reached" if v.reached else "missed"] for v in judge(samples)]
    parts += [table(["figure", "median [quartiles]", "goal", "verdict"], rows)]
    if samples.import_seconds:
        seconds = ", ".join(f"{name} {value:.2f} s" for name, value in samples.import_seconds.items())
        parts += ["", f"From the start of the process: {seconds}."]
    return "\n".join(parts)


def document(samples: Samples) -> dict[str, object]:
    return {
        "machine": machine(),
        "cells": [asdict(case) | {"system": each, "seconds": s} for (case, each), s in samples.seconds.items()],
        "imports": samples.imports,
        "import_seconds": samples.import_seconds,
        "verdicts": [asdict(verdict) for verdict in judge(samples)],
    }


def main() -> int:
    options = parse_arguments()
    only = set(options.only.split(","))
    if unknown := only - set(PARTS):
        sys.exit(f"not a part: {', '.join(sorted(unknown))}")
    load = os.getloadavg()[0]
    if load > 0.5:
        print(f"the machine is busy (load {load:.1f}): expect noise, compare nothing")
    out = options.out or ROOT / "benchmarks" / "results" / time.strftime("%Y%m%d-%H%M%S-tensorflow")
    out.mkdir(parents=True, exist_ok=True)
    samples = Samples()
    failures = []
    if "train" in only:
        for ranks in (int(number) for number in options.np.split(",")):
            print(f"measuring train with {ranks} ranks", flush=True)
            try:
                train(ranks, options, samples)
            except TeamError as error:
                failures.append(str(error))
    if "import" in only:
        print("measuring imports", flush=True)
        samples.imports, samples.import_seconds = import_ratios(options.rounds, 1, IMPORTS)
    said = text(samples)
    print(said)
    for failure in failures:
        print(f"failed: {failure}")
    facts = {"load": load, "rounds": options.rounds, "failures": failures}
    (out / "tensorflow.json").write_text(json.dumps(document(samples) | facts, indent=1))
    (out / "tensorflow.md").write_text(said + "\n")
    print(f"written to {out}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
