"""An elastic job under test: real horovodrun, real workers, hosts that a file lists, faults where they are wanted.

    with Job(horovodrun, folder, {"127.0.0.1": 2, "127.0.0.2": 2}, np=4) as job:
        job.wait_until_going(4)
        job.fault("kill", "commit", rank=1)
        job.wait_until_going(4)
        job.finish()            # AssertionError unless it ended well, no process is left and all ranks agree

Every wait has a limit; when it is reached the stacks of all workers are in the message.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
LIMIT = 180.0
Event = dict[str, Any]


class Job:
    """A running job. A context manager: nothing runs on after it."""

    def __init__(
        self,
        horovodrun: str,
        folder: Path,
        hosts: dict[str, int],
        np: int,
        *,
        options: tuple[str, ...] = (),
        program: str = "worker.py",
        env: dict[str, str] | None = None,
        popen: Callable[..., subprocess.Popen[bytes]] = subprocess.Popen,
        launch: Sequence[str] = (),
    ) -> None:
        """`popen` may start it on another host that shares this one's files; `launch` takes the place of horovodrun and
        its options, the list of hosts included."""
        self.folder = folder
        self.events: list[Event] = []
        self._numbers = itertools.count()
        self._world: dict[int, Event] = {}  # the last "going" of each process that is not known to be gone
        for name in ("faults", "claimed"):
            (folder / name).mkdir(parents=True)
        self._inbox = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._inbox.bind(str(folder / "events"))
        self._inbox.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        self.set_hosts(hosts)
        script = folder / "discover"
        script.write_text(f"#!/bin/sh\ncat {folder}/hosts\n")
        script.chmod(0o755)
        outside = {key: value for key, value in os.environ.items() if not key.startswith("HOROVOD_")}
        self._log = (folder / "log").open("wb")
        command = [*launch] or [horovodrun, "-np", str(np), "--host-discovery-script", str(script), *options]
        self.process = popen(
            [*command, sys.executable, str(HERE / program)],
            env=outside
            | {"PYTHONPATH": f"{ROOT / 'python'}:{HERE}", "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1"}
            | {"ELASTIC_TEST_FOLDER": str(folder)}
            | (env or {}),
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for pid in self.living():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._inbox.close()
        self._log.close()

    # ---- what the test does

    def set_hosts(self, hosts: dict[str, int]) -> None:
        """List other hosts from now on."""
        self.hosts = dict(hosts)
        new = self.folder / "hosts.new"
        new.write_text("".join(f"{host}:{slots}\n" for host, slots in hosts.items()))
        new.replace(self.folder / "hosts")

    def fault(self, kind: str, point: str, rank: int | str = "any") -> int:
        """Have a fault wait at a point, and return its number."""
        number = next(self._numbers)
        new = self.folder / "fault.new"
        new.touch()
        new.rename(self.folder / "faults" / f"{number:04}.{kind}.{point}.{rank}")
        return number

    def wait_for_fault(self, number: int) -> Event:
        """Wait until a worker has reached the fault."""
        return self.wait_for(lambda event: event["event"] == "fault" and event["number"] == number, f"fault {number}")

    def wait_until_going(self, size: int, after: float = 0.0) -> float:
        """Wait until a world of this size has done its first step, all of it after a time; when the last one did."""

        def is_going() -> bool:
            worlds = [each for each in self._world.values() if each["size"] == size and each["time"] > after]
            return {each["rank"] for each in worlds} == set(range(size))

        self.wait_until(is_going, f"a world of {size}")
        return max(each["time"] for each in self._world.values() if each["size"] == size and each["time"] > after)

    def wait_for(self, wanted: Callable[[Event], bool], what: str) -> Event:
        """Wait for an event that was not there when this job began."""
        found: list[Event] = []

        def has_come() -> bool:
            found.extend(event for event in self.events if wanted(event))
            return bool(found)

        self.wait_until(has_come, what)
        return found[0]

    def finish(self, exit_code: int = 0) -> list[Event]:
        """Ask the workers to stop, and check how the job ends; what they said at the end."""
        (self.folder / "stop").touch()
        return self.wait_for_end(exit_code)

    def wait_for_end(self, exit_code: int | None = 0) -> list[Event]:
        """Check that the job ends in time with this exit code, leaves no process, and all ranks have equal results."""
        self.wait_until(lambda: self.process.poll() is not None, "the end of the job")
        self._receive()
        code = self.process.returncode
        if exit_code is not None:
            assert code == exit_code, f"the job ended with exit code {code}\n{self.report()}"
        if code != 0:  # one that is killed itself has a guard, which needs a moment
            deadline = time.monotonic() + LIMIT
            while self.living() and time.monotonic() < deadline:
                time.sleep(0.01)
        assert not self.living(), f"still there: {self.living()}\n{self.report()}"
        wrong = [event for event in self.events if event["event"] == "wrong"]
        assert not wrong, f"{wrong}\n{self.report()}"
        done = [event for event in self.events if event["event"] == "done"]
        if exit_code == 0:
            assert done, f"no worker reached the end\n{self.report()}"
        assert len({(event["digest"], event["epoch"]) for event in done}) <= 1, f"{done}\n{self.report()}"
        return done

    def run_until(self, moment: float) -> None:
        """Let the job run until a time of the monotonic clock."""
        self.wait_until(lambda: time.monotonic() >= moment, "time left", limit=float("inf"))

    # ---- what it knows

    def members(self) -> set[int]:
        """The processes that are at work, as far as is known."""
        return set(self._world)

    def first_steps_after(self, moment: float, pids: set[int]) -> float:
        """When the last of these processes had done its first step in the first world after a time."""

        def first(pid: int) -> float | None:
            going = (each["time"] for each in self.events if each["event"] == "going" and each["pid"] == pid)
            return next((when for when in going if when > moment), None)

        self.wait_until(lambda: all(first(pid) is not None for pid in pids), "first step of all")
        return max(first(pid) or 0.0 for pid in pids)

    def epochs_between(self, begin: float, end: float) -> int:
        """How many epochs ended in that time."""
        return sum(event["event"] == "epoch" and begin < event["time"] <= end for event in self.events)

    def hosts_in_use(self, after: float = 0.0) -> list[str]:
        """The host of every process that has begun to work in its world after a time."""
        at_work = [event for event in self._world.values() if event["time"] > after]
        return [event["host"] for event in at_work if _is_worker(event["pid"])]

    def hosts_of_world(self, size: int) -> list[str]:
        """The host of every rank, by rank, of the newest world of this size."""
        newest = {event["rank"]: event for event in sorted(self._world.values(), key=lambda event: event["time"])}
        return [newest[rank]["host"] for rank in range(size)]

    def living(self) -> list[int]:
        """The processes of workers that have not ended."""
        pids = {event["pid"] for event in self.events}
        return [pid for pid in sorted(pids) if _is_worker(pid)]

    def log(self) -> str:
        """What horovodrun and the workers have written."""
        return (self.folder / "log").read_text(errors="replace")

    def report(self) -> str:
        told = [event for event in self.events if event["event"] != "epoch"]
        events = "\n".join(json.dumps(event) for event in told[-40:])
        waiting = sorted(path.name for path in (self.folder / "faults").iterdir())
        return f"hosts {self.hosts}, faults that wait: {waiting}\n{events}\n{self.log()[-8000:]}"

    def wait_until(self, condition: Callable[[], bool], what: str, limit: float = LIMIT) -> None:
        deadline = time.monotonic() + limit
        while not condition():
            self._inbox.settimeout(0.05 if self.process.poll() is None else 0.001)
            ended = self.process.poll() is not None
            self._receive()
            if condition():
                return
            assert not ended, f"the job ended (exit code {self.process.returncode}), no {what}\n{self.report()}"
            if time.monotonic() > deadline:
                self._show_stacks()
                raise AssertionError(f"no {what} after {limit:g} s\n{self.report()}")

    def _receive(self) -> None:
        """Take all events that are there; waits for the first for as long as the socket's limit says."""
        with contextlib.suppress(TimeoutError, BlockingIOError):
            while True:
                event = json.loads(self._inbox.recv(65536))
                self.events.append(event)
                if event["event"] == "going":
                    self._world[event["pid"]] = event
                elif event["event"] in ("fault", "done"):
                    self._world.pop(event["pid"], None)
                self._inbox.settimeout(0)

    def _show_stacks(self) -> None:
        for pid in self.living():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
                os.kill(pid, signal.SIGUSR1)
        self._inbox.settimeout(2)
        self._receive()


MakeJob = Callable[..., Job]  # as the fixture `start`


def _is_worker(pid: int) -> bool:
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return str(HERE).encode() in command and state != "Z"
