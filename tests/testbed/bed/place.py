"""The directory of a bed: its contents, and how the next run detects that its owner is gone.

The owner holds a lock on it for as long as it lives, however it ends. A directory without holder is a leftover; whoever
makes the next bed ends its processes and removes it.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from bed import groups

BEDS = Path("/run/horovod-testbed")
_numbers = itertools.count(1)


def _lock(path: Path, mode: int) -> int | None:
    """A descriptor that holds the lock, or None when another process does."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, mode)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """No other process makes or removes beds meanwhile. The directory goes with the last bed."""
    while True:
        BEDS.mkdir(mode=0o700, exist_ok=True)
        try:
            descriptor = _lock(BEDS, fcntl.LOCK_EX)
            assert descriptor is not None
            if os.path.samestat(os.stat(BEDS), os.fstat(descriptor)):
                break
            os.close(descriptor)  # removed while we waited for it
        except FileNotFoundError:
            continue
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            BEDS.rmdir()
        os.close(descriptor)


def _clear(directory: Path) -> None:
    bed_group = directory / "cgroup" / directory.name
    if bed_group.exists():
        groups.end(bed_group)
        groups.remove(bed_group)
    groups.unmount(directory / "cgroup")
    shutil.rmtree(directory)


def _sweep() -> None:
    for directory in BEDS.iterdir():
        descriptor = _lock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if descriptor is not None:
            _clear(directory)
            os.close(descriptor)


class Place:
    def __init__(self) -> None:
        with _alone():
            _sweep()
            # The name is also that of a control group, and those of several pid namespaces may share one tree.
            name = f"horovod-testbed-{os.getpid()}-{next(_numbers)}-{os.urandom(3).hex()}"
            self.directory = BEDS / name
            self.directory.mkdir()
            self._lock = _lock(self.directory, fcntl.LOCK_EX)
        self.group = self.directory / "cgroup" / name
        try:
            groups.mount(self.directory / "cgroup")
            self.group.mkdir()
        except BaseException:
            self.remove()
            raise

    def remove(self) -> None:
        """Ends every process in the bed. Afterwards nothing is left; a second call does nothing."""
        if self._lock is None:
            return
        with _alone():
            _clear(self.directory)
        os.close(self._lock)
        self._lock = None
