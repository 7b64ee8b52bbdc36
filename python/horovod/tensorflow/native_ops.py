"""Horovod's graph operations as TensorFlow's own wrappers: `module().horovod_allreduce(tensor, ...)` and so on.

They are in libhorovod_tensorflow.so, next to libhorovod.so. If it cannot be used with the installed
TensorFlow, or HOROVOD_TENSORFLOW_FALLBACK=1, the operations of fallback.py take their place.
"""

from __future__ import annotations

import ctypes
import functools
import os
import warnings
from pathlib import Path
from typing import Any

import tensorflow as tf

from horovod._native.library import library, library_path
from horovod.tensorflow import self_test

# Not HorovodJoin: its result is rarely used, and operations in this list are pruned if it is not.
CONCURRENT_OPS = frozenset(
    {
        "HorovodAllreduce",
        "HorovodGroupedAllreduce",
        "HorovodAllgather",
        "HorovodGroupedAllgather",
        "HorovodBroadcast",
        "HorovodBroadcastInplace",
        "HorovodBroadcastInplaceResource",
        "HorovodAlltoall",
        "HorovodReducescatter",
        "HorovodGroupedReducescatter",
        "HorovodSize",
        "HorovodProcessSetIncluded",
        "HorovodLocalSize",
        "HorovodRank",
        "HorovodLocalRank",
    }
)


def wrappers_path() -> str:
    """Where the library with the graph operations is."""
    return str(Path(library_path()).with_name("libhorovod_tensorflow.so"))


def load() -> Any:
    """Load the library and return TensorFlow's wrappers; ImportError if this TensorFlow cannot use it."""
    library()  # libhorovod.so first: the other one then uses the same
    path = wrappers_path()
    try:
        wrappers = tf.load_op_library(path)
    except (tf.errors.OpError, OSError) as error:
        raise ImportError(f"cannot load Horovod's operations for TensorFlow: {error}") from error
    problem = ctypes.CDLL(path).hvd_tensorflow_problem
    problem.restype = ctypes.c_char_p
    if text := problem():
        raise ImportError(f"cannot register Horovod's operations with TensorFlow {tf.__version__}: {text.decode()}")
    _run_concurrently()
    return wrappers


def _run_concurrently() -> None:
    """Keep functions from running our operations one after the other in the order of the program.

    They have to be stateful, because others are folded and merged; but stateful ones get a control edge from each to
    the next, and ranks whose orders differ would wait for each other forever. TensorFlow has a list of exceptions, for
    its own collectives.
    """
    try:
        from tensorflow.python.framework import auto_control_deps
    except ImportError as error:
        raise ImportError(f"TensorFlow {tf.__version__} has no module auto_control_deps") from error
    known = getattr(auto_control_deps, "ASYNC_STATEFUL_OPS", None)
    if known is None:
        raise ImportError(f"TensorFlow {tf.__version__} has no list of asynchronous stateful operations")
    auto_control_deps.ASYNC_STATEFUL_OPS = frozenset(known) | CONCURRENT_OPS


@functools.cache
def module() -> Any:
    """The operations: TensorFlow's wrappers, or fallback.py."""
    if os.environ.get("HOROVOD_TENSORFLOW_FALLBACK", "0") in ("", "0"):
        try:
            return _tested()
        except ImportError as error:
            warnings.warn(f"{error}; slower operations are used in their place", RuntimeWarning, stacklevel=2)
    from horovod.tensorflow import fallback

    return fallback


def _tested() -> Any:
    found = self_test.result(wrappers_path())
    if found not in ("", self_test.PASSED):
        raise ImportError(f"Horovod's operations do not work with TensorFlow {tf.__version__}: {found}")
    return load()


def is_fallback() -> bool:
    """Whether the slower operations of fallback.py are used."""
    return bool(module().__name__ == "horovod.tensorflow.fallback")
