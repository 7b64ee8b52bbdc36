#!/usr/bin/env python3
"""Measures the collectives of this project beside Open MPI, MPICH and Gloo, and judges the result.

Every round runs each program once, so that slow changes of the machine hit all alike. See README.md for how to read
the tables. The exit code is 1 when one of our own programs failed or computed something wrong.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import plot
import report
import verdicts
from machine import BUILD, CPUS, ROOT
from places import KINDS, PLACES, SHM, Network, Place
from plans import COLLECTIVES, FULL, QUICK
from programs import installed
from runner import Runner
from samples import Results, write


def build() -> None:
    if not (BUILD / "build.ninja").exists():
        subprocess.run(["cmake", "--preset", "release"], cwd=ROOT, check=True)
    jobs = os.environ.get("JOBS", str(len(CPUS)))
    subprocess.run(["cmake", "--build", str(BUILD), "-j", jobs, "--target", "bench_programs"], check=True)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a smoke run: few sizes and samples, about three minutes")
    parser.add_argument("--np", default="2,4", help="numbers of ranks (default: %(default)s)")
    parser.add_argument(
        "--only", default="", help="places (shm, tcp, hosts), collectives, 'special' (figures of the engine)"
    )
    parser.add_argument("--rounds", type=int, help=f"default: {FULL.rounds}, with --quick {QUICK.rounds}")
    parser.add_argument("--out", type=Path, help="directory (default: benchmarks/results/<time>)")
    parser.add_argument("--no-pin", action="store_true", help="let the kernel place the ranks")
    parser.add_argument("--no-build", action="store_true", help="use the programs as they are")
    return parser.parse_args()


def choose_places(only: set[str]) -> list[Place]:
    """Those that were asked for and can be had."""
    kinds = only & set(KINDS) or set(KINDS)
    reason = Network.why_not() if "hosts" in kinds else None
    if reason:
        print(f"nothing is measured between hosts: {reason}")
        kinds -= {"hosts"}
    return [place for place in PLACES if place.kind in kinds]


def conclude(runner: Runner, places: list[Place], ranks: list[int], out: Path, facts: dict[str, object]) -> str:
    """Writes all files and returns the report."""
    programs = dict.fromkeys(program.name for kind in KINDS for program in installed(kind))
    results = Results(runner.samples, runner.plan.least, list(programs))
    bars, figures = verdicts.judge_peers(results, places, ranks), verdicts.judge_figures(results, ranks)
    dropped = sum(sample.state is None for sample in runner.samples)
    parts = [report.measurements(results)]
    parts += ["## Beside the peers\n", report.verdict_table(bars), ""]
    parts += ["## What the engine costs\n", report.reading_table(figures), ""]
    parts += [f"{len(runner.samples)} samples, {dropped} dropped: the cores moved or were busy."]
    if facts["quick"]:
        parts += ["A quick run shows that everything works; it has too few samples for its ratios to mean anything."]
    parts += [f"failed: {failure}" for failure in runner.failures]
    text = "\n".join(parts)
    write(out / "samples.tsv", runner.samples)
    facts = facts | {"dropped": dropped, "failures": runner.failures}
    (out / "results.json").write_text(json.dumps(report.document(results, bars, figures, facts), indent=1))
    (out / "report.md").write_text(text + "\n")
    if importlib.util.find_spec("matplotlib"):
        for place in places:
            plot.draw(results, place.name, out / f"allreduce_{'_'.join(filter(None, [place.kind, place.rate]))}.png")
    else:
        print("matplotlib is not installed: no picture")
    return text


def main() -> int:
    options = parse_arguments()
    plan = QUICK if options.quick else FULL
    rounds = options.rounds or plan.rounds
    all_ranks = [int(ranks) for ranks in options.np.split(",")]
    only = set(filter(None, options.only.split(",")))
    if unknown := only - {*KINDS, *COLLECTIVES, "special"}:
        sys.exit(f"neither a place nor a collective: {', '.join(sorted(unknown))}")
    if not options.no_build:
        build()
    facts: dict[str, object] = {"machine": report.machine(), "quick": options.quick, "rounds": rounds}
    facts["pinned"] = not options.no_pin
    if os.getloadavg()[0] > 0.5:
        print(f"the machine is busy (load {os.getloadavg()[0]:.1f}): expect noise, compare nothing")
    out = options.out or ROOT / "benchmarks" / "results" / time.strftime("%Y%m%d-%H%M%S")
    out.mkdir(parents=True, exist_ok=True)
    runner = Runner(plan, pin=not options.no_pin)
    places = choose_places(only)
    for kind in dict.fromkeys(place.kind for place in places):
        print(f"measuring {kind}:", ", ".join(program.name for program in installed(kind)), flush=True)
    collectives = only - set(KINDS)
    start = time.monotonic()
    try:
        for number in range(rounds):
            if collectives != {"special"}:
                runner.run_round(number, places, all_ranks, collectives)
            if SHM in places and (not collectives or "special" in collectives):
                runner.run_special(number, SHM, all_ranks)
            print(f"round {number + 1} of {rounds} done after {time.monotonic() - start:.0f} s", flush=True)
    finally:
        runner.network.close()
    print(conclude(runner, places, all_ranks, out, facts))
    print(f"written to {out}")
    return 1 if runner.own_failures else 0


if __name__ == "__main__":
    sys.exit(main())
