"""Runs random GPU jobs (gpu_programs.py), each result compared with the CPU engine. The same seed gives the same job.

    python tests/gpu/random_jobs.py --jobs 200 --seed 7
    python tests/gpu/random_jobs.py --job 7.3 --times 20       # the fourth job of seed 7, again
    python tests/gpu/random_jobs.py --job 7.3 --schedule lazy

A job that fails is shown with its output and the command that runs it again.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "python"), str(HERE.parents[1] / "python")]

from gpu_machine import gpu_environment, limits, missing  # noqa: E402
from gpu_programs import SCHEDULES, make_job  # noqa: E402
from ranks import run_ranks  # noqa: E402


def random_rank(seed: str, rounds: int, size: int, gpus: int) -> None:
    import random_rank as rank
    from gpu_programs import make_job

    job = make_job(seed, rounds, size, gpus)
    print(f"fine: {rank.run(job)} steps", flush=True)


def run_job(seed: str, rounds: int = 6, schedule: str = "") -> int:
    """Run one job; how many steps its ranks took. AssertionError with the output and the command if it fails."""
    size, gpus = limits()
    job = make_job(seed, rounds, size, gpus)
    env = gpu_environment(job.nccl) | job.env
    env |= {
        "HVD_STANDIN_GPUS": str(job.size * job.gpus),
        "HVD_STANDIN_SCHEDULE": schedule or job.schedule,
        "HVD_STANDIN_SEED": str(sum(map(ord, seed))),
    }
    try:
        ended = run_ranks(job.size, random_rank, seed, rounds, size, gpus, env=env, limit=600)
        steps = [line for each in ended for line in each.lines if line.startswith("fine: ")]
        assert len(steps) == job.size, "\n".join(each.output + each.errors for each in ended)
    except AssertionError as error:
        again = f"python tests/gpu/random_jobs.py --job {seed} --rounds {rounds} --schedule {schedule or job.schedule}"
        raise AssertionError(f"{error}\nto run it again: {again}\nwith {job.env}") from None
    return sum(int(line.split()[1]) for line in steps)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=20)
    parser.add_argument("--seed", default=str(int(time.time())))
    parser.add_argument("--job", help="run this job alone")
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--schedule", default="", choices=["", *SCHEDULES])
    options = parser.parse_args()
    seeds = [options.job] if options.job else [f"{options.seed}.{number}" for number in range(options.jobs)]
    if reason := missing():
        print(reason)
        return 0
    steps = 0
    for seed in seeds * options.times:
        began = time.monotonic()
        try:
            steps += run_job(seed, options.rounds, options.schedule)
        except AssertionError as error:
            print(f"job {seed} failed\n{error}")
            return 1
        job = make_job(seed, options.rounds, *limits())
        print(f"{seed}: {job.size} ranks, {job.gpus} GPUs each, {job.schedule}, {time.monotonic() - began:.1f} s")
    print(f"{len(seeds) * options.times} jobs, {steps} steps of ranks, all as on host memory")
    return 0


if __name__ == "__main__":
    os.environ.setdefault("PYTHONFAULTHANDLER", "1")
    sys.exit(main())
