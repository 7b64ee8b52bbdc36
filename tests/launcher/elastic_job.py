"""A running elastic job, as a test sees it: the worlds that its workers report, and a file that lists its hosts."""

import contextlib
import os
import pathlib
import select
import signal
import subprocess
import sys
import time
from typing import NamedTuple

DEADLINE = 120
WORKER = pathlib.Path(__file__).parent / "elastic_worker.py"


class Member(NamedTuple):
    pid: int
    rank: int
    size: int
    local_rank: int
    local_size: int
    cross_rank: int
    cross_size: int
    host: str


class Job:
    """`hosts` is written to the file that the discovery script prints; None: no script. A context manager."""

    def __init__(self, horovodrun, folder, *options, hosts=None, command=None, script=None):
        self.folder = folder
        self.end = folder / "end"
        self.lines = []
        self._partial = b""
        if hosts is not None:
            self.list_hosts(hosts)
            script = script or f"cat {folder}/hosts"
        if script is not None:
            options = ("--host-discovery-script", script, *options)
        command = command or [sys.executable, str(WORKER), str(self.end)]
        self.err = folder / "stderr"
        with self.err.open("wb") as err:
            self.process = subprocess.Popen([horovodrun, *options, *command], stdout=subprocess.PIPE, stderr=err)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def list_hosts(self, hosts):
        """What the script prints from now on."""
        new = self.folder / "hosts.new"
        new.write_text("".join(f"{host}\n" for host in hosts))
        new.replace(self.folder / "hosts")

    def ask(self, what, rank):
        """Something of a rank: see elastic_worker.py."""
        (self.folder / f"{what}.{rank}").touch()

    def world(self, size, without=()):
        """Waits until all ranks of a world of this size have reported; those members, by rank.

        `without`: pids that must not be among them, because they are of a world that is past.
        """
        last = {}  # what each process said last
        while True:
            words = self.line().rpartition(":")[2].split()
            if words[:1] != ["world"]:
                continue
            member = Member(*map(int, words[1:8]), words[8])
            last[member.pid] = member
            members = {one.rank: one for one in last.values() if one.size == size and one.pid not in without}
            if len(members) == size:
                return [members[rank] for rank in range(size)]

    def line(self):
        """The next line of the job's stdout."""
        end = time.monotonic() + DEADLINE
        while b"\n" not in self._partial:
            assert select.select([self.process.stdout], [], [], max(0, end - time.monotonic()))[0], self.said()
            got = os.read(self.process.stdout.fileno(), 1 << 16)
            assert got, f"the job has ended: {self.said()}"
            self._partial += got
        line, _, self._partial = self._partial.partition(b"\n")
        self.lines.append(line.decode())
        return self.lines[-1]

    def wait_for(self, text):
        """Waits until the launcher or a worker has said this on stderr."""
        end = time.monotonic() + DEADLINE
        while text not in self.said():
            assert time.monotonic() < end, self.said()
            time.sleep(0.01)

    def said(self):
        return self.err.read_text()

    def finish(self):
        """Lets the workers end, and waits for the job; its exit code."""
        self.end.touch()
        return self.wait()

    def wait(self):
        out, _ = self.process.communicate(timeout=DEADLINE)
        self.lines += (self._partial + out).decode().splitlines()
        self._partial = b""
        return self.process.returncode


def kill(member, number=signal.SIGKILL):
    os.kill(member.pid, number)


@contextlib.contextmanager
def watched(members):
    """Returns a function that waits until they are all gone and returns whether they are; safe if pids are reused."""
    fds = [os.pidfd_open(member.pid) for member in members]

    def gone():
        end = time.monotonic() + DEADLINE
        return all(select.select([fd], [], [], max(0, end - time.monotonic()))[0] for fd in fds)

    try:
        yield gone
    finally:
        for fd in fds:
            os.close(fd)
