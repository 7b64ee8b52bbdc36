"""Errors of compiled collectives. XLA raises them as JaxRuntimeError, often when a later call needs the result, so
Horovod cannot raise its own. `raising_horovod_errors` turns them into what the verbs raise outside compiled functions.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import jax

from horovod._native.exceptions import HorovodInternalError
from horovod._native.library import Felt, world_failure

MARK = "horovod.jax: "  # src/adapters/jax/library.cc and fallback.py put it before their texts
MARK_OF_ARGUMENTS = "horovod.jax: invalid argument: "  # only where XLA's code does not say so


def as_horovod_error(error: BaseException) -> Exception | None:
    """What a failed collective raises outside compiled functions; None if this is no error of Horovod."""
    text = str(error)
    if not isinstance(error, jax.errors.JaxRuntimeError) or MARK not in text:
        return None
    own = text[text.index(MARK) + len(MARK) :].strip()
    if text.startswith("INVALID_ARGUMENT") or MARK_OF_ARGUMENTS in text:
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
    except jax.errors.JaxRuntimeError as error:
        meant = as_horovod_error(error)
        if meant is None:
            raise
        raise meant from error
