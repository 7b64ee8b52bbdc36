"""Commits in a file, from which a job continues after all its processes are gone.

The file is replaced atomically, so it always contains a complete commit; a checksum verifies
that. Its first lines name the job that wrote it. Reading it unpickles it: read only what your own jobs have written.
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import platform
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

_MAGIC = b"horovod commit 2\n"
_DIGEST_SIZE = hashlib.sha256().digest_size
_LONGEST_HEADER = 1 << 16


@dataclass(frozen=True)
class Origin:
    """The commit and the job of a file."""

    commits: int  # commits of the job so far
    job: int = 0  # drawn when it began, and kept by jobs that continue from its files
    run: int = 0  # drawn at every start of the job
    name: str = ""  # the user's name for it
    host: str = ""
    saved: str = ""  # when

    def __str__(self) -> str:
        return f'commit {self.commits} of job "{self.name}" (number {self.job:x}, saved {self.saved} on {self.host})'


def name_of_script() -> str:
    """The default name of a job: the same after a restart, usually different for other programs."""
    return Path(sys.argv[0]).name if sys.argv else ""


def write(path: Path, origin: Origin, values: Any) -> None:
    """Replace the file by a commit, unless it has a later one of the same run, whose rank 0 has changed since."""
    present = peek(path)
    if present is not None and present.run == origin.run and present.commits > origin.commits:
        return
    saved = datetime.now(timezone.utc).isoformat(" ", "seconds")
    header = json.dumps(asdict(replace(origin, host=platform.node(), saved=saved))).encode() + b"\n"
    payload = pickle.dumps(values, protocol=5)
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.unfinished")
    try:
        with unfinished.open("wb") as file:
            file.write(_MAGIC + header + _digest(header, payload))
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


def read(path: Path) -> tuple[Origin, Any]:
    """Return the file's description and its values; ValueError if it is damaged or another kind of file."""
    content = path.read_bytes()
    if not content.startswith(_MAGIC):
        raise ValueError(f"{path} is not a file that save_to has written")
    start = content.find(b"\n", len(_MAGIC), len(_MAGIC) + _LONGEST_HEADER) + 1
    header = content[len(_MAGIC) : start]
    payload = memoryview(content)[start + _DIGEST_SIZE :]
    if not start or _digest(header, payload) != content[start : start + _DIGEST_SIZE]:
        raise ValueError(f"{path} is damaged: wrong checksum; use another copy, or remove it to start from scratch")
    return Origin(**json.loads(header)), pickle.loads(payload)


def peek(path: Path) -> Origin | None:
    """The description in the file's first lines; None if there is no such file."""
    try:
        with path.open("rb") as file:
            if file.readline(len(_MAGIC)) != _MAGIC:
                return None
            return Origin(**json.loads(file.readline(_LONGEST_HEADER)))
    except (OSError, ValueError, TypeError):
        return None


def _digest(header: bytes, payload: bytes | memoryview) -> bytes:
    whole = hashlib.sha256(header)
    whole.update(payload)
    return whole.digest()


class DurableCommits:
    """Writes every n-th commit in a thread. Thread rule: one caller at a time."""

    def __init__(self, path: Path, every: int, name: str) -> None:
        self.path = path
        self.every = every
        self.name = name
        self.written = -1  # the last commit that was given to the thread
        self._thread: threading.Thread | None = None
        self._warn: Callable[[str], None] = lambda text: print(text, file=sys.stderr, flush=True)

    def is_due(self, commits: int) -> bool:
        """Whether to write a commit. Never during another write: slow disks must not stop training."""
        return commits % self.every == 0 and (self._thread is None or not self._thread.is_alive())

    def start(self, origin: Origin, values: Any) -> None:
        """Write a commit; the values stay as they are until it is done."""
        self.finish()
        self.written = origin.commits
        self._thread = threading.Thread(target=self._write, args=(origin, values), name="hvd-save")
        self._thread.start()

    def finish(self) -> None:
        """Wait until the current write is done."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _write(self, origin: Origin, values: Any) -> None:
        try:
            write(self.path, replace(origin, name=self.name), values)
        except Exception as error:  # training continues; the commit is still in memory
            self._warn(f"cannot save commit {origin.commits} to {self.path}: {error}")
