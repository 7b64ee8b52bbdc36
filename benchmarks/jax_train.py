#!/usr/bin/env python3
"""JAX: horovod.jax beside JAX's own collectives between processes (jax.distributed with Gloo, pmean in shard_map), and
beside as many processes that do not communicate.

    python benchmarks/jax_train.py [--np 2,4] [--only train,allreduce] [--rounds 12]

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
from torch_report import Case, Samples, Verdict
from torch_teams import Team, TeamError
from torch_train import calibrate

PARTS = ("train", "allreduce")
ALONE, OURS, GLOO = "alone", "horovod", "gloo"
RANK_PROGRAM = ROOT / "benchmarks" / "jax_rank.py"
MODELS = ("small", "large")
SIZES = tuple(str(4 * 16**power) for power in range(7))  # 4 bytes to 64 MiB
GOALS = {"small": 3.0, "large": 1.5}


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--np", default="2,4", help="numbers of ranks (default: %(default)s)")
    parser.add_argument("--only", default=",".join(PARTS), help="parts (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=12, help="samples of each system (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=0.6, help="of a sample (default: %(default)s)")
    parser.add_argument("--out", type=Path, help="directory (default: benchmarks/results/<time>-jax)")
    return parser.parse_args()


def check(case: Case, learnt: dict[str, list[float]]) -> None:
    """All ranks of a system have learnt the same, and both systems nearly the same."""
    for system in learnt.keys() - {ALONE}:
        if len(set(learnt[system])) != 1:
            raise TeamError(f"{system}, {case.text()}: the ranks have different results: {learnt[system]}")
    if abs(learnt[OURS][0] / learnt[GLOO][0] - 1) > 1e-4:
        raise TeamError(f"{case.text()}: {OURS} and {GLOO} have different results: {learnt}")


def measure(teams: list[Team], case: Case, rounds: int, seconds: float, samples: Samples) -> None:
    for team in teams:
        team.tell(f"prepare {case.kind} {case.what}")
    counts = {team.system: calibrate(team, seconds) for team in teams}
    if case.kind == "train":  # the same number of steps for all, so that all learn the same
        for team in teams:
            team.tell(f"prepare {case.kind} {case.what}")
        counts = dict.fromkeys(counts, min(counts.values()))
    learnt: dict[str, list[float]] = {}
    for number in range(rounds):
        shift = number % len(teams)
        for team in teams[shift:] + teams[:shift]:  # the order changes
            answers = team.tell(f"run {counts[team.system]}")
            samples.add(case, team.system, max(answer["seconds"] for answer in answers) / counts[team.system])
            learnt[team.system] = [answer["learnt"] for answer in answers]
    check(case, learnt)


def measure_all(ranks: int, only: set[str], options: argparse.Namespace, samples: Samples) -> None:
    cases = [Case(ranks, "train", model) for model in MODELS] + [Case(ranks, "allreduce", size) for size in SIZES]
    with contextlib.ExitStack() as stack:
        shared = {"JAX_PLATFORMS": "cpu"}
        teams = [stack.enter_context(Team(system, ranks, RANK_PROGRAM, shared)) for system in (ALONE, OURS, GLOO)]
        for team in teams:
            team.answers()
        for case in cases:
            if case.kind in only:
                systems = teams if case.kind == "train" else teams[1:]
                measure(systems, case, options.rounds, options.seconds, samples)


def judge(samples: Samples) -> list[Verdict]:
    verdicts = []
    for case in samples.cases("train"):
        against, goal = samples.ratio(case, GLOO, OURS), GOALS[case.what]
        title = f"{case.text()}: steps/s against JAX with Gloo"
        verdicts.append(Verdict(title, against.median, against.text(), f">= {goal}", against.median >= goal))
        if case.what == "large":
            share = samples.ratio(case, ALONE, OURS)
            title = f"{case.text()}: efficiency"
            verdicts.append(Verdict(title, share.median, share.text(), ">= 0.85", share.median >= 0.85))
    return verdicts


def text(samples: Samples) -> str:
    rows = []
    for case in [*samples.cases("train"), *samples.cases("allreduce")]:
        systems = [ALONE, OURS, GLOO] if case.kind == "train" else [OURS, GLOO]
        times = {each: statistics.median(samples.seconds[case, each]) * 1e6 for each in systems}
        shares = samples.ratio(case, ALONE, OURS).text() if case.kind == "train" else ""
        shown = [f"{times[each]:.0f}" if each in times else "" for each in (ALONE, OURS, GLOO)]
        rows.append([case.text(), *shown, samples.ratio(case, GLOO, OURS).text(), shares])
    head = ["case", *(f"{each}, us" for each in (ALONE, OURS, GLOO)), f"{OURS} x {GLOO}", f"{OURS} x {ALONE}"]
    parts = ["## JAX\n", table(head, rows), ""]
    rows = [[v.title, v.spread, v.bar, "reached" if v.reached else "missed"] for v in judge(samples)]
    return "\n".join([*parts, table(["figure", "median [quartiles]", "goal", "verdict"], rows)])


def main() -> int:
    options = parse_arguments()
    only = set(options.only.split(","))
    if unknown := only - set(PARTS):
        sys.exit(f"not a part: {', '.join(sorted(unknown))}")
    load = os.getloadavg()[0]
    if load > 0.5:
        print(f"the machine is busy (load {load:.1f}): expect noise, compare nothing")
    out = options.out or ROOT / "benchmarks" / "results" / time.strftime("%Y%m%d-%H%M%S-jax")
    out.mkdir(parents=True, exist_ok=True)
    samples = Samples()
    failures = []
    for ranks in (int(number) for number in options.np.split(",")):
        print(f"measuring with {ranks} ranks", flush=True)
        try:
            measure_all(ranks, only, options, samples)
        except TeamError as error:
            failures.append(str(error))
    said = text(samples)
    print(said)
    for failure in failures:
        print(f"failed: {failure}")
    cells = [asdict(case) | {"system": each, "seconds": s} for (case, each), s in samples.seconds.items()]
    facts = {"machine": machine(), "load": load, "rounds": options.rounds, "failures": failures}
    (out / "jax.json").write_text(json.dumps(facts | {"cells": cells}, indent=1))
    (out / "jax.md").write_text(said + "\n")
    print(f"written to {out}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
