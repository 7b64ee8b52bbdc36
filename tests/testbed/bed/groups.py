"""Control groups (version 2): all that was started in a host, and only that, is counted, frozen and ended."""

from __future__ import annotations

import os
import select
import subprocess
from pathlib import Path

PATIENCE = 60  # seconds; the kernel needs milliseconds


def mount(point: Path) -> None:
    """A mount of our own: where and whether the machine has one differs."""
    point.mkdir()
    subprocess.run(["mount", "-t", "cgroup2", "cgroup2", str(point)], check=True)


def unmount(point: Path) -> None:
    if os.path.ismount(point):
        subprocess.run(["umount", str(point)], check=True)


def _wait(group: Path, event: str) -> None:
    with (group / "cgroup.events").open() as events:
        poll = select.poll()
        poll.register(events, select.POLLPRI)
        while event not in events.read().splitlines():
            if not poll.poll(PATIENCE * 1000):
                raise TimeoutError(f"{group.name} did not reach '{event}' in {PATIENCE} s")
            events.seek(0)


def pids(group: Path) -> list[int]:
    """Also those of the groups that its processes made."""
    return [int(pid) for procs in group.rglob("cgroup.procs") for pid in procs.read_text().split()]


def freeze(group: Path, frozen: bool) -> None:
    (group / "cgroup.freeze").write_text(str(int(frozen)))
    _wait(group, f"frozen {int(frozen)}")


def end(group: Path) -> None:
    """Kills every process, frozen ones too, and returns when none is left."""
    (group / "cgroup.kill").write_text("1")
    _wait(group, "populated 0")


def remove(group: Path) -> None:
    for directory, _, _ in os.walk(group, topdown=False):
        os.rmdir(directory)
