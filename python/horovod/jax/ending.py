"""The end of a world with compiled collectives. JAX runs programs in the background: a script may be at its end while
steps that other ranks wait in have not run. So the shutdown waits for them, unless an exception ends the script.
"""

from __future__ import annotations

import atexit
import functools
import sys
from typing import Any

import jax
import jax.numpy as jnp

from horovod.common.names import _basics


@functools.wraps(_basics.init)
def init(*args: Any, **kwargs: Any) -> Any:
    result = _basics.init(*args, **kwargs)
    atexit.unregister(_wait_at_exit)
    atexit.register(_wait_at_exit)  # runs before what init has registered
    return result


def shutdown() -> None:
    """End communication on all ranks, after the programs that this thread has started. May be called again."""
    if _basics.is_initialized() and sys.exc_info()[0] is None:
        wait_for_programs()
    _basics.shutdown()


def wait_for_programs() -> None:
    """Wait until all programs that this thread has started have run: JAX runs them in order, so one more tells."""
    jax.block_until_ready(jnp.zeros(()) + 1)


def _wait_at_exit() -> None:
    if _basics.is_initialized() and getattr(sys, "last_value", None) is None:
        wait_for_programs()


__all__ = ["init", "shutdown", "wait_for_programs"]
