"""Runs random programs on real processes and compares every result with a serial model.

    python tests/differential/run.py                              # 1,000 programs, another seed each time
    python tests/differential/run.py --programs 20000 --seed 7
    python tests/differential/run.py --job 7.3                    # the fourth job of seed 7 again, alone
    python tests/differential/run.py --job 7.3 --only 2.5 --times 100    # only the sixth program of its third world

A wrong value, a hang, a crash, an error that should not be, or growth of descriptors, threads or memory is shown with
its job, program and difference; then the run ends with exit code 1. Where several threads or processes race, a job may
need several runs to fail again: that is what --times is for.
"""

from __future__ import annotations

import argparse
import gc
import random
import select
import signal
import sys
import time

import environment  # noqa: F401
import model
import program
from processes import JobFailed, RunningJob
from program import Job, Program
from shorten import Shortener

LONG_EVERY = 25  # one job of so many lasts for a thousand programs


class Counts:
    """What was run so far."""

    def __init__(self) -> None:
        self.jobs = self.worlds = self.programs = self.operations = self.lost = 0
        self.began = time.monotonic()

    def add(self, job: Job) -> None:
        self.jobs += 1
        self.worlds += len(job.worlds)
        self.programs += job.programs()
        self.lost += sum(len(world.victims) for world in job.worlds)
        phases = [phase for world in job.worlds for each in world.programs for phase in each.phases]
        self.operations += sum(phase.repeat * len(lane) for phase in phases for lane in phase.lanes)

    def text(self) -> str:
        seconds = time.monotonic() - self.began
        return (
            f"{self.programs} programs ({self.operations} operations, {self.worlds} worlds, {self.jobs} jobs, "
            f"{self.lost} ranks lost) in {seconds:.0f} s, {self.programs / seconds:.0f} in a second"
        )


def make(name: str, options: argparse.Namespace) -> Job:
    number = int(name.split(".")[1])
    job = program.make_job(name, options.ranks, long=number % LONG_EVERY == LONG_EVERY - 1)
    if options.only:
        world, _, of_world = options.only.partition(".")
        job = program.narrow(job, int(world), int(of_world) if of_world else None)
    return job


def names(options: argparse.Namespace) -> list[str] | None:
    """The jobs to run, or None for as many as the programs need."""
    return [options.job] * options.times if options.job else None


def run(options: argparse.Namespace, seed: int, counts: Counts) -> None:
    """JobFailed has the reason."""
    given = names(options)
    number, running, planned = 0, [], 0
    shown = time.monotonic()
    try:
        while True:
            while len(running) < options.at_once:
                if (number >= len(given)) if given is not None else (planned >= options.programs):
                    break
                job = make(given[number] if given is not None else f"{seed}.{number}", options)
                running.append(RunningJob(job, options.hang_seconds, options.inject))
                planned += job.programs()
                number += 1
            if not running:
                return
            waiting = [fd for each in running for fd in each.descriptors()]
            select.select(waiting, [], [], 0.002 if any(each.job.stops for each in running) else 0.05)
            for each in list(running):
                try:
                    if each.tick():
                        counts.add(each.job)
                        running.remove(each)
                        each.close()
                except JobFailed as problem:
                    while running:
                        running.pop().close()
                    text = f"{problem}\n{describe(each.job, problem.where, options)}"
                    raise JobFailed(f"{text}\n{shorter(each.job, problem, options)}") from None
            if time.monotonic() - shown > 10:
                shown = time.monotonic()
                under_way = sum(each.programs_done() for each in running)
                print(f"seed {seed}: {counts.text()}; {under_way} in jobs that run", flush=True)
    finally:
        for each in running:
            each.close()


def describe(job: Job, where: str, options: argparse.Namespace) -> str:
    """The program that went wrong, and how to run it again."""
    lines = []
    words = where.split()
    again = f"python tests/differential/run.py --job {job.name}"
    if options.ranks != DEFAULT_RANKS:
        again += f" --ranks {','.join(map(str, options.ranks))}"
    if options.without:
        again += f" --without {options.without}"
    if len(words) >= 2 and words[0] == "world":
        world = job.worlds[int(words[1])]
        lines += [f"{where} of job {job.name}: {len(world.members)} ranks on hosts of {list(world.hosts)}"]
        lines += [f"knobs {world.knobs}, own {list(world.own_knobs)}, cores {list(world.cores)}"]
        lines += [f"sets given to init {list(world.static_sets)}, ending {world.ending}, lost {world.victims}"]
        if len(words) >= 4 and words[2] == "program":
            lines += listing(world.programs[int(words[3])])
            lines += [f"\nonly this program: {again} --only {words[1]}.{words[3]} --times 100"]
        lines += [f"only this world:   {again} --only {words[1]} --times 20"]
    return "\n".join([*lines, f"the job again:     {again}"])


def shorter(job: Job, problem: JobFailed, options: argparse.Namespace) -> str:
    """The shortest job found that goes wrong in the same way, in words."""
    words = problem.where.split()
    if len(words) < 2 or words[0] != "world" or problem.kind == "growth":
        return ""
    program_number = int(words[3]) if words[2:3] == ["program"] else None
    found = Shortener(problem.kind, options.inject, options.shorten_seconds).shorten(job, int(words[1]), program_number)
    if found is None:
        return f"\nno shorter job went wrong within {options.shorten_seconds:.0f} s"
    programs = [line for each in found.worlds[0].programs for line in listing(each)]
    return "\n".join(["\nthe shortest that goes wrong in this way too:", *programs])


def listing(of: Program) -> list[str]:
    """A program as lines."""
    lines = [f"process sets at its beginning: {list(of.sets)}"]
    for phase in of.phases:
        what = f" {list(phase.ranks)}" if phase.ranks else f" after {list(phase.counts)}" if phase.counts else ""
        lines.append(f"  {phase.kind}{what}{f', {phase.repeat} times' if phase.repeat > 1 else ''}")
        for number, lane in enumerate(phase.lanes):
            lines += [f"    {f'lane {number}: ' if len(phase.lanes) > 1 else ''}{each}" for each in lane]
    return lines


DEFAULT_RANKS = (1, 2, 2, 2, 3, 3, 4, 4, 5, 6)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=int, default=1000, help="default: %(default)s")
    parser.add_argument("--seed", type=int, help="default: another each time")
    parser.add_argument("--job", help="SEED.NUMBER: only this job")
    parser.add_argument("--only", help="WORLD or WORLD.PROGRAM of the job")
    parser.add_argument("--times", type=int, default=1, help="how often to run the job (default: %(default)s)")
    parser.add_argument(
        "--ranks",
        type=lambda text: tuple(map(int, text.split(","))),
        default=DEFAULT_RANKS,
        help="world sizes to choose from (default: %(default)s)",
    )
    parser.add_argument("--at-once", type=int, default=2, help="jobs that run at the same time (default: %(default)s)")
    parser.add_argument("--hang-seconds", type=float, default=120, help="default: %(default)s")
    parser.add_argument(
        "--shorten-seconds", type=float, default=60, help="time for making what fails shorter (default: %(default)s)"
    )
    parser.add_argument("--inject", choices=["value", "hang", "crash"], default="", help="a fault that must be found")
    parser.add_argument("--without", default="", help=f"{', '.join(program.SWITCHES)}, separated by commas")
    options = parser.parse_args(arguments)
    program.ENABLED -= frozenset(options.without.split(","))
    seed = random.SystemRandom().randrange(10**6) if options.seed is None else options.seed
    counts = Counts()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))  # so that nothing is left behind
    model.prepare()
    gc.freeze()  # existing objects are not garbage of the forked processes
    try:
        run(options, seed, counts)
    except JobFailed as problem:
        print(f"{problem}\n\nwent wrong after {counts.text()}", file=sys.stderr)
        return 1
    print(f"seed {seed}: {counts.text()}: no wrong value, no hang, no crash")
    return 0


if __name__ == "__main__":
    sys.exit(main())
