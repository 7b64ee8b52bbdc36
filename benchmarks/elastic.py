#!/usr/bin/env python3
"""How fast elastic jobs recover, and what they cost when nothing happens. On this machine, with real processes.

python benchmarks/elastic.py [--kills 30] [--joins 10] [--goodput-seconds 60] [--kill-every 10] [--only recovery,cost]

recovery: kill -9 of a random rank of 4, until all survivors have finished their first collective in the new world.
join:     a host is added; from the newcomer's first line of Python after its imports, until all ranks have finished a
          collective with it.
cost:     what check_host_updates and commit add to a step of some 50 ms (elastic_cost.py; Adam, a million parameters).
goodput:  samples per second with kills, beside those before the first kill. Kills come more often than the once a
          minute that the goal speaks of, to take less time; what each costs gives the goodput at one a minute.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from machine import ROOT

sys.path.insert(0, str(ROOT / "tests" / "elastic"))
from job import Job

BIN = ROOT / ".venv" / "bin"
RUN = str(BIN / "horovodrun")
SIZE = 4
HOSTS = {"127.0.0.1": 2, "127.0.0.2": 2, "127.0.0.3": 2, "127.0.0.4": 2}
OPTIONS = ("--min-np", "1", "--max-np", str(SIZE), "--blacklist-cooldown-range", "1", "1")


def start(folder: str, hosts: dict[str, int], size: int, **more: str) -> Job:
    env = {"ELASTIC_TEST_SAMPLES": "2000", **more}
    return Job(RUN, Path(folder) / "job", hosts, size, options=OPTIONS, env=env)


def kill_one(job: Job, chance: random.Random) -> float:
    """Kill a rank of a full world, and return how long the others needed to continue."""
    rank = chance.randrange(SIZE)
    fault = job.wait_for_fault(job.fault("kill", chance.choice(["negotiation", "collective", "commit"]), rank))
    survivors = job.members() - {fault["pid"]}
    job.wait_for(
        lambda event: event["event"] == "going" and event["time"] > fault["time"] and event["pid"] in survivors,
        "the survivors' next world",
    )
    going = job.first_steps_after(fault["time"], survivors)
    job.wait_until_going(SIZE, fault["time"])
    return going - float(fault["time"])


def report(name: str, seconds: list[float], goal: str) -> None:
    print(
        f"{name:34} p50 {statistics.median(seconds):6.2f} s  max {max(seconds):6.2f} s  "
        f"({len(seconds)} times; goal: {goal})",
        flush=True,
    )


def recovery(options: argparse.Namespace) -> None:
    chance = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as folder, start(folder, HOSTS, SIZE) as job:
        job.wait_until_going(SIZE)
        seconds = [kill_one(job, chance) for _ in range(options.kills)]
        job.finish()
    report("kill -9 to the next collective", seconds, "p50 1 s, max 2 s")


def begun_after(job: Job, moment: float) -> float:
    """When a process began that was not there at a time."""
    begun = job.wait_for(lambda event: event["event"] == "begun" and event["time"] > moment, "a newcomer")
    return float(begun["time"])


def join(options: argparse.Namespace) -> None:
    seconds = []
    few, more = {"127.0.0.1": 2}, {"127.0.0.1": 2, "127.0.0.2": 1}
    with tempfile.TemporaryDirectory() as folder, start(folder, few, 2) as job:
        job.wait_until_going(2)
        for _ in range(options.joins):
            changed = time.monotonic()
            job.set_hosts(more)
            seconds.append(job.wait_until_going(3, changed) - begun_after(job, changed))
            changed = time.monotonic()
            job.set_hosts(few)
            job.wait_until_going(2, changed)
        job.finish()
    report("newcomer to its first collective", seconds, "2 s")


def cost(_options: argparse.Namespace) -> None:
    command = [RUN, "-np", "2", "--min-np", "2", "-H", "localhost:2", sys.executable]
    done = subprocess.run(
        [*command, str(ROOT / "benchmarks" / "elastic_cost.py")], capture_output=True, text=True, check=True
    )
    found = re.search(r"\{.*\}", done.stdout)
    assert found, done.stdout + done.stderr
    times = json.loads(found[0])
    bare = times["bare"]
    print(
        f"{'asking after every step':34} {times['checked_more']:+.2f} ms on {bare:.1f} ms: "
        f"{times['checked_more'] / bare:+.2%} (goal: 1 %)\n"
        f"{'a commit after every step':34} {times['committed_more']:+.2f} ms on {bare:.1f} ms: "
        f"{times['committed_more'] / bare:+.2%}, of which the copy {times['copy']:.2f} ms",
        flush=True,
    )


def goodput(options: argparse.Namespace) -> None:
    chance = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as folder, start(folder, HOSTS, SIZE) as job:
        job.wait_until_going(SIZE)
        began = time.monotonic()
        job.run_until(began + options.kill_every)
        undisturbed = job.epochs_between(began, time.monotonic()) / options.kill_every
        began, kills = time.monotonic(), 0
        while time.monotonic() < began + options.goodput_seconds:
            next_kill = time.monotonic() + options.kill_every
            kill_one(job, chance)
            kills += 1
            job.run_until(next_kill)
        taken = time.monotonic() - began
        rate = job.epochs_between(began, time.monotonic()) / taken
        job.finish()
    share = rate / undisturbed
    lost = (1 - share) * taken / kills
    print(
        f"{'goodput':34} {share:.1%} with a kill every {options.kill_every:g} s ({kills} kills, {lost:.2f} s each), "
        f"so {1 - lost / 60:.1%} with one a minute (goal: 95 %)",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--joins", type=int, default=10)
    parser.add_argument("--goodput-seconds", type=float, default=60)
    parser.add_argument("--kill-every", type=float, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="recovery,join,cost,goodput")
    options = parser.parse_args()
    parts = {"recovery": recovery, "join": join, "cost": cost, "goodput": goodput}
    for name in options.only.split(","):
        parts[name](options)


if __name__ == "__main__":
    main()
