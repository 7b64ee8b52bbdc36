"""Names of collectives that are compiled without one. They must not depend on the order in which a rank compiles its
functions, so they consist of the call's position in the user's program, and the number of calls of the same verb that
were traced before it in the same function.

Thread rule: any thread.
"""

from __future__ import annotations

import os
import sys
import weakref
from collections import Counter
from collections.abc import Sequence
from typing import Any

import jax

_counts: weakref.WeakKeyDictionary[Any, Counter[str]] = weakref.WeakKeyDictionary()  # by trace


def name_for_trace(verb: str, leaves: Sequence[Any]) -> str:
    """A name that is equal on all ranks with the same program. It excludes shapes, so mismatches are reported."""
    name = _place()
    number = _number_in_trace(f"{verb}.{name}", leaves)
    return name if number == 0 else f"{name}.{number}"


def _place() -> str:
    frame: Any = sys._getframe(1)
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module.partition(".")[0] not in ("jax", "horovod", "flax", "optax", "keras", "contextlib", "functools"):
            return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"
        frame = frame.f_back
    return "compiled"


def _number_in_trace(name: str, leaves: Sequence[Any]) -> int:
    trace = next((getattr(leaf, "_trace", None) for leaf in leaves if isinstance(leaf, jax.core.Tracer)), None)
    if trace is None:
        return 0
    counter = _counts.setdefault(trace, Counter())
    number = counter[name]
    counter[name] += 1
    return number
