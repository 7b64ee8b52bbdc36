"""The messages between the caller of horovod.run and its workers, and the encoding of objects.

Functions and results are pickled with cloudpickle; large arrays are sent separately, which saves a copy.
Thread rule: pure functions.
"""

from __future__ import annotations

import os
import pickle
import site
import sys
import sysconfig
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import cloudpickle

KEY_VARIABLE = "_HOROVOD_RUN_KEY"  # hex of the run's key; the worker removes it before the function is called
_BESIDE = 64 << 10  # bytes from which a buffer is sent separately from the pickle
_MOST_BESIDE = 10_000  # so that their lengths fit into a header

Parts = Sequence[bytes | bytearray | memoryview]


@dataclass(frozen=True)
class Worker:
    """Identifies a worker."""

    rank: int
    host: str
    pid: int

    def __str__(self) -> str:
        return f"rank {self.rank} on {self.host}"


@dataclass(frozen=True)
class Report:
    """A worker's error, as text. The exception itself is sent with it if it can be pickled."""

    summary: str  # the last line of the traceback: type and message
    traceback: str
    consequence: bool  # a collective failed; the cause is usually in another rank
    origin: int = -1  # the rank whose failure caused this one, if known


def pack(value: Any) -> list[bytes | memoryview]:
    """The parts of a message that carry `value`."""
    beside: list[memoryview] = []

    def keep_inside(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes < _BESIDE or len(beside) == _MOST_BESIDE:
            return True
        beside.append(raw)
        return False

    return [cloudpickle.dumps(value, protocol=5, buffer_callback=keep_inside), *beside]


def unpack(parts: Parts) -> Any:
    """The value that `pack` was given. Unpickling runs code: only for data from an authenticated channel."""
    return pickle.loads(parts[0], buffers=parts[1:])


def own_paths() -> list[str]:
    """The entries of sys.path that do not belong to Python and its environment."""
    common = {*sysconfig.get_paths().values(), *site.getsitepackages(), site.getusersitepackages()}
    common |= {path for path in sys.path if path.startswith(sys.base_prefix + os.sep)}
    return [os.path.abspath(path) for path in sys.path if path not in common]


def function_name(function: Any) -> str:
    """The name of a function, for messages."""
    function = getattr(function, "func", function)  # of a functools.partial
    return str(getattr(function, "__qualname__", None) or type(function).__qualname__)


def type_name(value: Any) -> str:
    """The name of a value's type, as tracebacks show it."""
    kind = type(value)
    return (
        kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__qualname__}"
    )


def describe(error: BaseException) -> str:
    """The last line of its traceback."""
    return "".join(traceback.format_exception_only(type(error), error)).strip()
