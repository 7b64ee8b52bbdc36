"""Errors of compiled collectives. XLA raises them as JaxRuntimeError, often when a later call needs the result, so
Horovod cannot raise its own. `raising_horovod_errors` turns them into what the verbs raise outside compiled functions.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from horovod._native.exceptions import HorovodInternalError
from horovod._native.library import Felt, world_failure

MARK = "horovod.jax: "  # src/adapters/jax/library.cc and fallback.py put it before their texts
MARK_OF_ARGUMENTS = f"{MARK}invalid argument: "  # only if XLA's code does not say so


def as_horovod_error(error: BaseException) -> Exception | None:
    """The exception that a failed collective raises outside compiled functions; None for other errors."""
    text = str(error)
    if MARK not in text:  # any class: JAX raises ValueError for an input from a failed program
        return None
    own = text[text.index(MARK) + len(MARK) :].strip()
    if text.startswith("INVALID_ARGUMENT") or own.startswith("invalid argument: "):
        return ValueError(own.removeprefix("invalid argument: "))
    origin = world_failure()
    if origin is not None and not origin.is_own:
        Felt.origin = origin
    return HorovodInternalError(own, origin=origin)


@contextlib.contextmanager
def raising_horovod_errors() -> Iterator[None]:
    """Raise HorovodInternalError (or ValueError) in place of the JaxRuntimeError of a failed compiled collective.

    As a context or a decorator around a training loop. `hvd.elastic.run` does this by itself.
    """
    try:
        yield
    except Exception as error:
        meant = as_horovod_error(error)
        if meant is None:
            raise
        raise meant from error
