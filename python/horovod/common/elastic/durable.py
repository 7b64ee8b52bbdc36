"""Commits in a file, from which a job goes on after all of its processes are gone.

The file is replaced as a whole, so that whatever happens it holds a complete commit; a checksum tells whether it still
does. Reading it unpickles it: read only what your own jobs have written.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

_MAGIC = b"horovod commit 1\n"


def write(path: Path, commits: int, values: Any) -> None:
    """Replace the file by a commit, the `commits`-th of its job."""
    payload = pickle.dumps({"commits": commits, "values": values}, protocol=5)
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.unfinished")
    try:
        with unfinished.open("wb") as file:
            file.write(_MAGIC + hashlib.sha256(payload).digest())
            file.write(payload)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def read(path: Path) -> tuple[int, Any]:
    """Return the number of commits and the values; ValueError if the file is damaged or another kind of file."""
    content = path.read_bytes()
    start = len(_MAGIC) + hashlib.sha256().digest_size
    if not content.startswith(_MAGIC):
        raise ValueError(f"{path} is not a file that save_to has written")
    payload = memoryview(content)[start:]
    if hashlib.sha256(payload).digest() != content[len(_MAGIC) : start]:
        raise ValueError(f"{path} is damaged: wrong checksum; go on from another copy, or remove it to begin anew")
    commit = pickle.loads(payload)
    return commit["commits"], commit["values"]


class DurableCommits:
    """Writes every n-th commit in a thread. Thread rule: one caller at a time."""

    def __init__(self, path: Path, every: int) -> None:
        self.path = path
        self.every = every
        self.written = -1  # the last commit that was given to the thread
        self._thread: threading.Thread | None = None
        self._warn: Callable[[str], None] = lambda text: print(text, file=sys.stderr, flush=True)

    def is_due(self, commits: int) -> bool:
        """Whether a commit is to be written. Never while another is: disks that are too slow do not stop training."""
        return commits % self.every == 0 and (self._thread is None or not self._thread.is_alive())

    def start(self, commits: int, values: Any) -> None:
        """Write a commit; the values stay as they are until it is done."""
        self.finish()
        self.written = commits
        self._thread = threading.Thread(target=self._write, args=(commits, values), name="hvd-save")
        self._thread.start()

    def finish(self) -> None:
        """Wait for what is being written."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _write(self, commits: int, values: Any) -> None:
        try:
            write(self.path, commits, values)
        except Exception as error:  # training goes on; the commit in memory is there
            self._warn(f"cannot save commit {commits} to {self.path}: {error}")
