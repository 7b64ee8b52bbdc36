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
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import plot
import report
import verdicts
from programs import BUILD, CAPI, CPUS, RAW, ROOT, Program, installed
from samples import Results, Sample, parse, write

MI = 1 << 20
TIME_LIMIT = 180  # seconds for one program; some peers hang now and then
BLOCK_DIRECTORY = "/dev/shm" if os.path.isdir("/dev/shm") else None


@dataclass(frozen=True)
class Plan:
    """How much is measured."""

    rounds: int
    samples: int  # of each case and round
    milliseconds: float  # of a sample
    least: int  # samples that make a cell
    allreduce: list[int]
    others: list[int]


FULL = Plan(4, 5, 15, 3, verdicts.ALLREDUCE_BYTES, [4 << 10, 512 << 10, 64 * MI])
QUICK = Plan(1, 3, 8, 1, [4, 4 << 10, 64 << 10, MI, 16 * MI], [4 << 10, 512 << 10])
OTHERS = ("allgather", "broadcast", "alltoall", "reducescatter")
SPECIAL = {RAW: [("burst", verdicts.BURST_BYTES)], CAPI: [("burst", verdicts.BURST_BYTES), ("async", 4), ("idle", 0)]}

Cases = list[tuple[str, int]]  # collective and bytes


def bands(plan: Plan, only: set[str]) -> list[Cases]:
    """The cases in groups that are run together: a group takes few seconds, so that its programs stay close in time."""
    allreduce = [("allreduce", size) for size in plan.allreduce]
    others = [(kind, size) for kind in OTHERS for size in plan.others]
    groups = [
        [case for case in allreduce if case[1] <= MI],
        [case for case in allreduce if case[1] > MI],
        [case for case in others if case[1] <= MI] + [("barrier", 0)],
        [case for case in others if case[1] > MI],
    ]
    chosen = [[case for case in group if not only or case[0] in only] for group in groups]
    return [group for group in chosen if group]


def cases_of(program: Program, group: Cases) -> Cases:
    def wanted(kind: str, size: int) -> bool:
        return size >= program.min_bytes and (kind == "allreduce" or not program.allreduce_only)

    return [case for case in group if wanted(*case)]


def arguments(cases: Cases) -> list[str]:
    kinds = dict.fromkeys(kind for kind, _ in cases)
    return [f"{kind}:" + ",".join(str(size) for k, size in cases if k == kind) for kind in kinds]


def stop(process: subprocess.Popen[str]) -> None:
    """Launchers put their ranks into groups of their own: they are asked first, so that they can stop them."""
    for signal_number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, signal_number)
            process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            continue
        except ProcessLookupError:
            return


class Runner:
    def __init__(self, plan: Plan, pin: bool) -> None:
        self.plan = plan
        self.pin = pin
        self.samples: list[Sample] = []
        self.failures: list[str] = []
        self.own_failures = 0

    def run(self, round_number: int, program: Program, ranks: int, cases: Cases) -> None:
        settings = [str(ranks), str(self.plan.samples), str(self.plan.milliseconds)]
        command = [*program.command(ranks), *settings, *arguments(cases)]
        with tempfile.TemporaryDirectory(prefix="horovod-bench-", dir=BLOCK_DIRECTORY) as directory:
            store = Path(directory) / "store"
            store.mkdir()
            environment = os.environ | program.environment
            environment |= {"BENCH_BLOCK": f"{directory}/block", "BENCH_GLOO_STORE": str(store)}
            environment |= {"BENCH_CPUS": ",".join(map(str, CPUS)), "BENCH_PIN": str(int(self.pin))}
            process = subprocess.Popen(
                command,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
            try:
                output, errors = process.communicate(timeout=TIME_LIMIT)
            except subprocess.TimeoutExpired:
                stop(process)
                output, errors = process.communicate()
                errors += f"\nno end after {TIME_LIMIT} s"
            except BaseException:
                stop(process)
                raise
        lines = [line for line in output.splitlines() if line.count("\t") >= 5]
        samples = [parse(line, round_number, program.name) for line in lines]
        self.samples += samples
        problem = ""
        if process.returncode != 0:
            problem = (errors.strip().splitlines() or [f"exit code {process.returncode}"])[-1]
        elif any(sample.wrong for sample in samples):
            problem = "wrong result: " + ", ".join(sorted({f"{s.collective} {s.bytes}" for s in samples if s.wrong}))
        if problem:
            self.failures.append(f"round {round_number}, {program.name}, {ranks} ranks: {problem}")
            self.own_failures += program.ours
            print(self.failures[-1], flush=True)

    def run_round(self, number: int, programs: list[Program], all_ranks: list[int], groups: list[Cases]) -> None:
        order = programs if number % 2 == 0 else programs[::-1]
        for ranks in all_ranks:
            for group in groups:
                for program in order:
                    if cases := cases_of(program, group):
                        self.run(number, program, ranks, cases)

    def run_special(self, number: int, programs: list[Program], all_ranks: list[int]) -> None:
        for ranks in all_ranks:
            for program in programs:
                if program.name in SPECIAL:
                    self.run(number, program, ranks, SPECIAL[program.name])


def build() -> None:
    if not (BUILD / "build.ninja").exists():
        subprocess.run(["cmake", "--preset", "release"], cwd=ROOT, check=True)
    jobs = os.environ.get("JOBS", str(len(CPUS)))
    subprocess.run(["cmake", "--build", str(BUILD), "-j", jobs, "--target", "bench_programs"], check=True)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a smoke run: few sizes and samples, about a minute")
    parser.add_argument("--np", default="2,4", help="numbers of ranks (default: %(default)s)")
    parser.add_argument("--only", default="", help="collectives, or 'special' for the figures of the engine")
    parser.add_argument("--rounds", type=int, help=f"default: {FULL.rounds}, with --quick {QUICK.rounds}")
    parser.add_argument("--out", type=Path, help="directory (default: benchmarks/results/<time>)")
    parser.add_argument("--no-pin", action="store_true", help="let the kernel place the ranks")
    parser.add_argument("--no-build", action="store_true", help="use the programs as they are")
    return parser.parse_args()


def conclude(runner: Runner, ranks: list[int], out: Path, facts: dict[str, object]) -> str:
    """Writes all files and returns the report."""
    results = Results(runner.samples, runner.plan.least, [program.name for program in installed()])
    bars, figures = verdicts.judge_peers(results, ranks), verdicts.judge_figures(results, ranks)
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
        plot.draw(results, out / "allreduce.png")
    else:
        print("matplotlib is not installed: no picture")
    return text


def main() -> int:
    options = parse_arguments()
    plan = QUICK if options.quick else FULL
    rounds = options.rounds or plan.rounds
    all_ranks = [int(ranks) for ranks in options.np.split(",")]
    only = set(filter(None, options.only.split(",")))
    if unknown := only - {"allreduce", *OTHERS, "barrier", "special"}:
        sys.exit(f"not a collective: {', '.join(sorted(unknown))}")
    if not options.no_build:
        build()
    facts: dict[str, object] = {"machine": report.machine(), "quick": options.quick, "rounds": rounds}
    facts["pinned"] = not options.no_pin
    if os.getloadavg()[0] > 0.5:
        print(f"the machine is busy (load {os.getloadavg()[0]:.1f}): expect noise, compare nothing")
    out = options.out or ROOT / "benchmarks" / "results" / time.strftime("%Y%m%d-%H%M%S")
    out.mkdir(parents=True, exist_ok=True)
    runner = Runner(plan, pin=not options.no_pin)
    programs = installed()
    print("measuring", ", ".join(program.name for program in programs), flush=True)
    groups = bands(plan, only)
    start = time.monotonic()
    for number in range(rounds):
        runner.run_round(number, programs, all_ranks, groups)
        if not only or "special" in only:
            runner.run_special(number, programs, all_ranks)
        print(f"round {number + 1} of {rounds} done after {time.monotonic() - start:.0f} s", flush=True)
    print(conclude(runner, all_ranks, out, facts))
    print(f"written to {out}")
    return 1 if runner.own_failures else 0


if __name__ == "__main__":
    sys.exit(main())
