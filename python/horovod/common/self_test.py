"""Tests once per version of a framework, in a separate process, whether Horovod's native part works with it.

If a future version lays out its data differently, that process crashes, not the user's. The result is kept in the
user's cache folder.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

PASSED = "passed"
_PATIENCE = 300.0  # seconds, for importing a framework on a busy machine


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """The ranks of a host run it one after another, so that the second finds the result of the first."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(f"{path}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@dataclass(frozen=True)
class SelfTest:
    """A script that prints "loaded" once the framework and the library are loaded, then PASSED or the error.

    Its arguments are the path of the library and then `sys.path`.
    """

    framework: str  # with its version: tensorflow-2.21.0
    library: str
    script: str
    environment: Mapping[str, str] = field(default_factory=dict)

    def result(self) -> str:
        """Return the error, PASSED on success, or an empty text if it cannot be determined."""
        try:
            path = self._cache_file()
            if path.exists():
                return path.read_text()
            with _locked(path):
                if not path.exists() and (found := self.run()):
                    path.write_text(found)
                return path.read_text() if path.exists() else ""
        except (OSError, RuntimeError):  # no home, or not writable: the library checks what it can
            return ""

    def run(self) -> str:
        """As `result`, but every time."""
        environment = {**os.environ, **self.environment}
        command = [sys.executable, "-c", self.script, self.library, *sys.path]
        try:
            child = subprocess.run(command, env=environment, capture_output=True, timeout=_PATIENCE, check=False)
        except subprocess.TimeoutExpired as error:
            return "it does not finish" if b"loaded" in (error.stdout or b"") else ""
        except OSError:
            return ""
        lines = child.stdout.decode(errors="replace").split("\n")
        if "loaded" not in lines:
            return ""
        if child.returncode < 0:
            return f"it ends with {signal.Signals(-child.returncode).name}"
        if child.returncode > 0:
            return "it fails: " + child.stderr.decode(errors="replace").strip().rsplit("\n", 1)[-1]
        return lines[lines.index("loaded") + 1]

    def _cache_file(self) -> Path:
        """The file for this version of the framework and this build of the library."""
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "horovod"
        build = os.stat(self.library)
        return folder / f"{self.framework}-{build.st_size:x}-{build.st_mtime_ns:x}"
