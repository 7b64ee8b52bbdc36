"""Tries once per TensorFlow, in a process of its own, whether a kernel may finish from another thread.

The graph operations rely on how TensorFlow stores a callback (src/adapters/tensorflow/done_callback.h). Should a future
version do it differently, that process crashes, not the user's, and Horovod uses slower operations. What came out is
kept in the user's cache folder.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import tensorflow as tf

PASSED = "passed"
_PATIENCE = 300.0  # seconds, for importing TensorFlow on a busy machine

# The first line says that TensorFlow and the library are there: whatever fails before tells nothing.
_SCRIPT = """
import sys
sys.path[:] = sys.argv[2:]
import tensorflow as tf
ops = tf.load_op_library(sys.argv[1])
print("loaded", flush=True)
many = tf.function(lambda x: tf.add_n([ops.horovod_self_test(x) for _ in range(100)]))
results = [int(ops.horovod_self_test(7)), int(many(tf.constant(7))), int(many(tf.constant(5)))]
print("passed" if results == [7, 700, 500] else f"wrong results {results}", flush=True)
"""


def _cache_file(library: str) -> Path:
    """The file for this TensorFlow and this build of the library."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "horovod"
    build = os.stat(library)
    return folder / f"tensorflow-{tf.__version__}-{build.st_size:x}-{build.st_mtime_ns:x}"


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """The ranks of a host try one after the other, so that the second finds what the first has found out."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(f"{path}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def run(library: str) -> str:
    """Return what is wrong, PASSED if nothing is, or an empty text if that cannot be found out."""
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-c", _SCRIPT, library, *sys.path]
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


def result(library: str) -> str:
    """As `run`, but only the first time."""
    try:
        path = _cache_file(library)
        if path.exists():
            return path.read_text()
        with _locked(path):
            if not path.exists() and (found := run(library)):
                path.write_text(found)
            return path.read_text() if path.exists() else ""
    except (OSError, RuntimeError):  # no home, or one that cannot be written: the kernels check what they can
        return ""
