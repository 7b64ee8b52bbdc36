"""A world of processes on the hosts of a test bed that trains, fails, and forms again, as often as a test wants.

    fleet = Fleet(bed, {"hosta": 2, "hostb": 2, "hostc": 1}, directory)
    fleet.survive(bed["hostb"].cut, bed["hostb"].heal)      # all fail, clean up, and train again

A process is known by its number, the rank it had in the first world. Thread rule: one thread.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import placement
from bed import Bed
from ranks import Ranks, failure, say

import horovod.numpy as hvd

PORT = 20000  # of the store in the first world: below those that the kernel gives away
PATIENCE = 60.0  # for what has no stated limit
LIMIT = 300.0  # for all that is done with one fleet


def environment(bed: Bed, hosts: dict[str, int], rank: int, port: int) -> dict[str, str]:
    """The place of a rank in a world of the bed's hosts; rank 0 serves the store under its host's name."""
    names, counts = list(hosts), list(hosts.values())
    place = placement.place(counts, rank)
    host = names[int(place["HOROVOD_HOSTNAME"].removeprefix("host"))]
    return place | {
        "HOROVOD_SIZE": str(sum(counts)),
        "HOROVOD_HOSTNAME": host,
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": names[0],
        "HOROVOD_GLOO_RENDEZVOUS_PORT": str(port),
    }


def start_ranks(
    bed: Bed,
    hosts: dict[str, int],
    body: Callable[..., object],
    *args: Any,
    env_of: Callable[[int], dict[str, str]] = lambda _rank: {},
    **options: Any,
) -> Ranks:
    """As Ranks, in the hosts of a bed: `hosts` says how many ranks each has; env_of(rank) comes last."""

    def start(rank: int, command: list[str], env: dict[str, str], **rest: Any) -> subprocess.Popen[str]:
        env = env | environment(bed, hosts, rank, PORT) | env_of(rank)
        del env["HOROVOD_GLOO_IFACE"]  # which pretended hosts need
        return bed[env["HOROVOD_HOSTNAME"]].popen(command, env=env, **rest)

    return Ranks(list(hosts.values()), body, *args, start=start, **options)


class Gate:
    """Shut until open(): ranks that take a shared lock on its file wait there, all of them."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w")
        fcntl.flock(self._file, fcntl.LOCK_EX)
        self.path = str(path)

    def open(self) -> None:
        fcntl.flock(self._file, fcntl.LOCK_UN)
        self._file.close()


def train_in_worlds(directory: str) -> None:
    """Forms a world, reduces small and large tensors until that fails, and continues in the next world."""
    import json

    def resources() -> set[str]:
        files = set()
        for each in os.listdir("/proc/self/fd"):
            try:
                files.add(f"{each} {os.readlink(f'/proc/self/fd/{each}')}")
            except FileNotFoundError:
                continue  # the one that lists
        return files | {f"thread {each}" for each in os.listdir("/proc/self/task")}

    def reduce(step: int) -> None:
        result = hvd.allreduce(np.ones(10 if step % 2 else 1 << 20, np.float32), op=hvd.Sum, name=f"step {step % 2}")
        assert result[0] == result[-1] == hvd.size(), result

    def left_over() -> list[str]:
        """Looks again for a while: a thread that has ended is listed until the kernel is done with it."""
        end = time.monotonic() + 20
        while True:
            left = sorted(resources() - before)
            threads = sum(each.startswith("thread") for each in left)
            serves = hosted_store and threads <= 1 and len(left) <= 9  # the store stays, for the worlds to come
            if serves or not threads or time.monotonic() > end:
                return [] if serves else left
            time.sleep(0.01)

    number = os.environ["HOROVOD_RANK"]
    before = resources()
    world, hosted_store = 0, False
    while True:
        hosted_store = hosted_store or os.environ["HOROVOD_RANK"] == "0"
        problem = failure(hvd.init)
        if problem != "no error":
            say(f"world {world} did not form: {problem}")
            return
        step = 0
        while problem == "no error":
            problem = failure(lambda step=step: reduce(step))  # type: ignore[misc]
            step += problem == "no error"
            if step % 4 == 0 and problem == "no error":
                say(f"world {world} of {hvd.size()} did step {step};")
        say(f"world {world} failed: {problem}")
        say(f"world {world} later: " + failure(lambda: hvd.allgather(np.ones(3), name="later")))
        hvd.shutdown()
        say(f"world {world} left: {left_over()}")
        world += 1
        with open(f"{directory}/{world}.json") as places:
            os.environ.update(json.load(places)[number])


class Fleet:
    """Up once made: all train. A context manager: nothing runs on after it."""

    def __init__(self, bed: Bed, hosts: dict[str, int], directory: Path, env: dict[str, str] | None = None) -> None:
        self.bed, self._directory, self._hosts = bed, directory, hosts
        self._world = 0
        self._host_of = [host for host, count in hosts.items() for _ in range(count)]
        self.numbers = list(range(len(self._host_of)))  # of those in the world, by rank
        self.is_whole = False  # all that were started train together
        settings = {"HOROVOD_SILENCE_SECONDS": "2", "HOROVOD_HEARTBEAT_SECONDS": "0.4"}
        self.ranks = start_ranks(bed, hosts, train_in_worlds, str(directory), env=settings | (env or {}), limit=LIMIT)
        try:
            self._await_training()
        except BaseException:
            self.close()
            raise
        self.is_whole = True

    def __enter__(self) -> Fleet:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.ranks.__exit__()

    def on(self, host: str) -> list[int]:
        """The numbers of those on a host."""
        return [number for number in self.numbers if self._host_of[number] == host]

    def host(self, number: int) -> str:
        return self._host_of[number]

    def pid(self, number: int) -> int:
        return self.ranks.processes[number].pid

    @property
    def port(self) -> int:
        """Of the store."""
        return PORT + self._world

    def survive(
        self,
        fault: Callable[[], object],
        repair: Callable[[], object] = lambda: None,
        *,
        dead: Iterable[int] = (),
        asleep: Iterable[int] = (),
        within: float,
    ) -> dict[int, str]:
        """The message that each received. `dead` do not come back; those `asleep` are told after the repair."""
        self.is_whole = False
        dead, asleep = set(dead), set(asleep)
        awake = [number for number in self.numbers if number not in dead | asleep]
        failed, remaining = self._world, [number for number in self.numbers if number not in dead]
        self._write_next_world(remaining)
        began = time.monotonic()
        fault()
        told = {number: self._await_failure(number, failed, within - (time.monotonic() - began)) for number in awake}
        repair()
        told |= {number: self._await_failure(number, failed, PATIENCE) for number in asleep}
        for number in remaining:
            self.ranks.wait_for_line(number, f"world {failed} left: []", PATIENCE)
            assert f"world {failed} later: HorovodInternalError" in self._output(number)
        self.numbers = remaining
        self._await_training()
        self.is_whole = not dead
        return told

    def _output(self, number: int) -> str:
        return "\n".join(self.ranks.lines(number))

    def _await_failure(self, number: int, world: int, limit: float) -> str:
        said = f"world {world} failed: "
        self.ranks.wait_for_line(number, said, limit)
        text = next(line.removeprefix(said) for line in self.ranks.lines(number) if line.startswith(said))
        assert text.startswith("HorovodInternalError: "), text
        return text

    def _await_training(self) -> None:
        for number in self.numbers:
            self.ranks.wait_for_line(number, f"world {self._world} of {len(self.numbers)} did step 8;", PATIENCE)

    def _write_next_world(self, numbers: list[int]) -> None:
        self._world += 1
        hosts = {host: sum(self._host_of[n] == host for n in numbers) for host in self._hosts}
        hosts = {host: count for host, count in hosts.items() if count}
        places = {number: environment(self.bed, hosts, rank, self.port) for rank, number in enumerate(numbers)}
        (self._directory / f"{self._world}.json").write_text(json.dumps(places))
