"""Injects random faults into elastic jobs, and reports the outcome of each kind. The same seed gives the same schedule.

    python tests/elastic/faults.py                       # 500 faults
    python tests/elastic/faults.py --faults 2000 --seed 7
    python tests/elastic/faults.py --job 7.3             # the fourth job of seed 7 again, alone

Before them, one rank survives while workers that are started beside it fail: half before they join, half after. What
launcher, agent and survivor hold must not grow with the generations.

A job that hangs, ends wrong, leaves a process, loses or repeats a sample, whose ranks differ at the end, or whose
processes hold more and more is shown with its seed, its log and the stacks of its workers; then the run ends with exit
code 1.
"""

from __future__ import annotations

import argparse
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from growth import Growth, launchers_of
from job import ROOT, Event, Job

SIZE = 4
# Many more slots than ranks: a host whose process was sent SIGTERM gets no other for a minute.
HOSTS = {f"127.0.0.{number}": 2 for number in range(1, 17)}
OPTIONS = ("--min-np", "1", "--max-np", str(SIZE), "--blacklist-cooldown-range", "1", "1", "--elastic-timeout", "60")
FAULTS_PER_JOB = 25

AT_ONCE = ("negotiation", "collective", "commit")  # points that every rank comes to again and again
IN_BETWEEN = (("kill", "sync"), ("later", "forming"), ("kill", "leaving"), ("kill", "init"), ("exit", "init"))


@dataclass
class Summary:
    """What was survived, and how long it took until a full world was at work again."""

    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    faults: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def count(self) -> int:
        return sum(self.faults.values())

    def print(self) -> None:
        print(f"\n{'fault':<28}{'times':>7}")
        for name, times in sorted(self.faults.items()):
            print(f"{name:<28}{times:>7}")
        print(f"\n{'what the schedule did':<28}{'times':>7}{'full again, p50':>18}{'max':>8}")
        for name, times in sorted(self.seconds.items()):
            print(f"{name:<28}{len(times):>7}{statistics.median(times):>16.2f} s{max(times):>6.2f} s")
        print(f"\n{self.count()} faults, no hang, no lost sample, no orphan")


class Schedule:
    """A random sequence of actions on one job."""

    def __init__(self, job: Job, chance: random.Random, summary: Summary) -> None:
        self._job = job
        self._chance = chance
        self._summary = summary
        self._removed: str | None = None
        self._actions = {
            self.one_fault: 50,
            self.two_at_once: 10,
            self.one_while_recovering: 20,
            self.all_but_one: 5,
            self.host_goes: 10,
            self.one_falls_silent: 2,
        }

    def run(self, faults: int) -> None:
        """Act until there were so many faults, each time waiting until a full world is at work again."""
        usage = Growth()
        self._job.wait_until_going(SIZE)
        done = 0
        while done < faults:
            action = self._chance.choices(list(self._actions), list(self._actions.values()))[0]
            began = time.monotonic()
            action()
            last = max([began, *(event["time"] for event in self._faults())])
            self._job.wait_until_going(SIZE, began)
            self._summary.seconds[action.__name__.replace("_", " ")].append(time.monotonic() - last)
            usage.measure(launchers_of(self._job.process.pid))
            done = len(self._faults()) + self._hosts_gone
        for event in self._faults():
            self._summary.faults[f"{event['kind']} at {event['point']}"] += 1
        self._summary.faults["host removed"] += self._hosts_gone
        assert not usage.leaks(), "\n".join(usage.leaks())

    _hosts_gone = 0

    def _faults(self) -> list[Event]:
        return [event for event in self._job.events if event["event"] == "fault"]

    def _kind(self) -> str:
        return self._chance.choices(["kill", "exit", "term"], [6, 2, 2])[0]

    def one_fault(self) -> None:
        rank = self._chance.choice(["any", *range(SIZE)])
        self._job.wait_for_fault(self._job.fault(self._kind(), self._chance.choice(AT_ONCE), rank))

    def two_at_once(self) -> None:
        first, second = self._chance.sample(range(SIZE), 2)
        numbers = [self._job.fault(self._kind(), self._chance.choice(AT_ONCE), rank) for rank in (first, second)]
        for number in numbers:
            self._job.wait_for_fault(number)

    def one_while_recovering(self) -> None:
        kind, point = self._chance.choice(IN_BETWEEN)
        waiting = self._job.fault(kind, point)
        self.one_fault()
        self._job.wait_for_fault(waiting)

    def all_but_one(self) -> None:
        survivor = self._chance.randrange(SIZE)
        point = self._chance.choice(AT_ONCE)
        numbers = [self._job.fault("kill", point, rank) for rank in range(SIZE) if rank != survivor]
        for number in numbers:
            self._job.wait_for_fault(number)

    def one_falls_silent(self) -> None:
        self._job.wait_for_fault(self._job.fault("stop", self._chance.choice(AT_ONCE)))

    def host_goes(self) -> None:
        """One that has ranks; the one that went before comes back."""
        used = sorted(set(self._job.hosts_of_world(SIZE)))  # not those of workers that are late
        gone = self._chance.choice(used)
        self._job.set_hosts({host: slots for host, slots in HOSTS.items() if host != gone})
        self._hosts_gone += 1


def flap(horovodrun: str, times: int) -> None:
    """One survives, and every other worker fails; AssertionError when something grows."""
    folder = Path(tempfile.mkdtemp(prefix="elastic-"))
    hosts = {"127.0.0.1": 1} | {f"flapping{number}": 1 for number in range(8)}
    ssh = {"HOROVOD_SSH_COMMAND": f"{sys.executable} {ROOT / 'tests/launcher/fake_ssh.py'}", "FAKE_SSH": str(folder)}
    options = ("--min-np", "1", "--max-np", "2", "--blacklist-cooldown-range", "1", "1", "--output-filename")
    with Job(horovodrun, folder / "job", hosts, 2, options=(*options, str(folder / "output")), env=ssh) as job:
        usage = Growth()
        job.wait_until_going(2)
        for number in range(times):
            began = time.monotonic()
            waiting = [job.fault("exit", "init")] * (number % 2)
            waiting.append(job.fault("kill", "commit", 1))
            job.wait_until_going(2, max(job.wait_for_fault(each)["time"] for each in waiting))
            survivor = next(event["pid"] for event in job.events if event["event"] == "going" and event["rank"] == 0)
            usage.measure(launchers_of(job.process.pid) | {"survivor": survivor})
            if number % 20 == 19:
                print(f"flapping: {number + 1} generations, the last in {time.monotonic() - began:.1f} s", flush=True)
        usage.check()
        job.finish()
    shutil.rmtree(folder)


def run_job(horovodrun: str, seed: str, faults: int, summary: Summary) -> None:
    """One job with so many faults; AssertionError has the reason."""
    folder = Path(tempfile.mkdtemp(prefix="elastic-"))
    with Job(horovodrun, folder, HOSTS, SIZE, options=OPTIONS) as job:
        Schedule(job, random.Random(seed), summary).run(faults)
        job.finish()
    shutil.rmtree(folder)  # kept when something was wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=500, help="default: %(default)s")
    parser.add_argument("--flaps", type=int, default=100, help="generations of the first job; default: %(default)s")
    parser.add_argument("--seed", type=int, help="default: another each time")
    parser.add_argument("--job", help="SEED.NUMBER: only this job")
    parser.add_argument("--horovodrun", default=str(ROOT / "python/horovod/bin/horovodrun"))
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(10**6) if options.seed is None else options.seed
    summary, number, began = Summary(), 0, time.monotonic()
    try:
        if not options.job and options.flaps > 0:
            flap(options.horovodrun, options.flaps)
    except AssertionError as problem:
        print(f"{problem}\n\nthe job with failing workers went wrong", file=sys.stderr)
        return 1
    while summary.count() < options.faults:
        name = options.job or f"{seed}.{number}"
        try:
            run_job(options.horovodrun, name, min(FAULTS_PER_JOB, options.faults - summary.count()), summary)
        except AssertionError as problem:
            print(f"{problem}\n\njob {name} went wrong: python tests/elastic/faults.py --job {name}", file=sys.stderr)
            return 1
        number += 1
        print(f"job {name}: {summary.count()} faults after {time.monotonic() - began:.0f} s", flush=True)
        if options.job:
            break
    summary.print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
