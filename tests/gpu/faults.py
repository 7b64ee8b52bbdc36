"""Injects random faults of GPUs and NCCL into elastic jobs under horovodrun. The same seed gives the same schedule.

    python tests/gpu/faults.py                       # 300 faults
    python tests/gpu/faults.py --faults 50 --seed 7
    python tests/gpu/faults.py --job 7.3             # the fourth job of seed 7 again, alone

Each fault is a file that the stand-in claims at the next call of that name, in whichever process comes first. Then a
full world must be at work again, with every sample used exactly once, and in the end nothing may be left on any GPU.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(HERE.parent / "elastic"), str(HERE.parent / "python"), str(ROOT / "python")]

from gpu_machine import gpu_environment  # noqa: E402
from job import Job  # noqa: E402

SIZE = 3
HOSTS = {f"127.0.0.{number}": 2 for number in range(1, 13)}
OPTIONS = ("--min-np", "1", "--max-np", str(SIZE), "--blacklist-cooldown-range", "1", "1", "--elastic-timeout", "120")
FAULTS_PER_JOB = 20
SCHEDULES = ("eager", "lazy", "random")

# What a running world comes to in every step, and what only a new one does; with how often each is chosen.
IN_STEPS = {
    ("nccl.kernel", "kill"): 10,
    ("nccl.kernel.end", "kill"): 4,
    ("nccl.launch", "kill"): 3,
    ("cuLaunchKernel", "kill"): 3,
    ("cuEventRecord", "kill"): 3,
    ("nccl.kernel", "async(2)"): 3,
    ("nccl.kernel", "async(3)"): 3,
    ("nccl.kernel", "async(6)"): 3,
    ("nccl.kernel", "never"): 3,
    ("nccl.launch", "busy"): 2,
    ("ncclAllReduce", "1"): 3,
    ("ncclAllReduce", "3"): 3,
    ("cuLaunchKernel", "1"): 2,
    ("nccl.kernel", "700"): 3,
    ("cuLaunchKernel", "719"): 2,
    ("nccl.kernel", "slow(200)"): 2,
    ("nccl.launch", "busy(100)"): 2,
    ("nccl.kernel", "stop"): 1,
}
IN_NEW_WORLDS = {
    ("ncclCommInitRankConfig", "kill"): 4,
    ("ncclCommInitRankConfig", "2"): 4,
    ("nccl.connect", "kill"): 4,
    ("nccl.connect", "3"): 4,
    ("nccl.connect", "slow(300)"): 2,
    ("ncclGetUniqueId", "2"): 3,
    ("cuModuleLoadDataEx", "222"): 3,
    ("cuStreamCreateWithPriority", "2"): 2,
    ("ncclCommAbort", "kill"): 3,
    ("ncclCommAbort", "slow(300)"): 3,
}
HARMLESS = ("slow(", "busy(", "222")  # the world goes on


class Faults:
    """The folder that the stand-in claims faults from."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self.folder = job.folder / "gpu"

    def put(self, point: str, action: str) -> None:
        for old in self.folder.glob(f"{point}.claimed.*"):
            old.unlink()
        new = self.folder / "new"
        new.write_text(action)
        new.rename(self.folder / point)

    def wait(self, point: str) -> float:
        """Wait until a process has claimed it; when."""
        self._job.wait_until(lambda: any(self.folder.glob(f"{point}.claimed.*")), f"fault {point}")
        return time.monotonic()


def strike(job: Job, faults: Faults, chance: random.Random) -> list[tuple[str, str]]:
    """One fault, or one in a step and one while the others recover; which."""
    first = chance.choices(list(IN_STEPS), list(IN_STEPS.values()))[0]
    chosen = [first]
    if chance.random() < 0.35:
        chosen.append(chance.choices(list(IN_NEW_WORLDS), list(IN_NEW_WORLDS.values()))[0])
        if first[1].startswith(HARMLESS):
            first = chosen[0] = ("nccl.kernel", "async(3)")
        faults.put(*chosen[1])
    began = time.monotonic()
    faults.put(*first)
    for point, _ in chosen:
        faults.wait(point)
    if not first[1].startswith(HARMLESS):
        job.wait_until_going(SIZE, began)
    return chosen


def run_job(horovodrun: str, seed: str, count: int, happened: Counter[str]) -> None:
    """One job with so many faults; AssertionError tells what was wrong."""
    chance = random.Random(f"gpu faults {seed}")
    top = Path(tempfile.mkdtemp(prefix="gpu-faults-"))
    folder = top / "job"
    folder.mkdir()
    (folder / "gpu").mkdir()
    env = gpu_environment()
    env |= {
        "PYTHONPATH": f"{ROOT / 'python'}:{HERE.parent / 'elastic'}:{HERE}",
        "HVD_STANDIN_GPUS": str(sum(HOSTS.values())),
        "HVD_STANDIN_FAULT_FOLDER": str(folder / "gpu"),
        "HVD_STANDIN_SCHEDULE": chance.choice(SCHEDULES),
        "HVD_STANDIN_SEED": str(chance.randrange(1000)),
        "HVD_STANDIN_PEER_LOSS": chance.choice(("error", "hang")),
        "HOROVOD_COLLECTIVE_TIMEOUT_SECONDS": "8",
    }
    with Job(horovodrun, folder, HOSTS, SIZE, options=OPTIONS, program="gpu_worker.py", env=env) as job:
        faults = Faults(job)
        job.wait_until_going(SIZE)
        done = 0
        while done < count:
            for point, action in strike(job, faults, chance):
                happened[f"{action} at {point}"] += 1
                done += 1
        job.finish()
        assert "VIOLATION" not in job.log(), job.report() + job.log()
    shutil.rmtree(top)  # kept when something was wrong


def run(horovodrun: str, seed: str, count: int) -> Counter[str]:
    """Jobs until there were so many faults."""
    happened: Counter[str] = Counter()
    number, began = 0, time.monotonic()
    while sum(happened.values()) < count:
        name = f"{seed}.{number}"
        try:
            run_job(horovodrun, name, min(FAULTS_PER_JOB, count - sum(happened.values())), happened)
        except AssertionError as problem:
            raise AssertionError(f"{problem}\n\njob {name} went wrong: tests/gpu/faults.py --job {name}") from None
        print(f"job {name}: {sum(happened.values())} faults after {time.monotonic() - began:.0f} s", flush=True)
        number += 1
    return happened


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=300, help="default: %(default)s")
    parser.add_argument("--seed", type=int, help="default: another each time")
    parser.add_argument("--job", help="SEED.NUMBER: only this job")
    parser.add_argument("--horovodrun", default=str(ROOT / "python/horovod/bin/horovodrun"))
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(10**6) if options.seed is None else options.seed
    happened: Counter[str] = Counter()
    try:
        if options.job:
            run_job(options.horovodrun, options.job, FAULTS_PER_JOB, happened)
        else:
            happened = run(options.horovodrun, str(seed), options.faults)
    except AssertionError as problem:
        print(problem, file=sys.stderr)
        return 1
    for name, times in sorted(happened.items()):
        print(f"{name:<44}{times:>5}")
    print(f"{sum(happened.values())} faults, no hang, no lost sample, no process lost but the victims, nothing left")
    return 0


if __name__ == "__main__":
    os.environ.setdefault("PYTHONFAULTHANDLER", "1")
    sys.exit(main())
