"""The end of a world with compiled collectives. JAX runs programs in the background: a script may reach its end while
steps that other ranks wait in have not run. So the shutdown waits for them, unless an exception ends the script.
"""

from __future__ import annotations

import atexit
import sys
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from horovod._generic.process_sets import ProcessSet
from horovod.common.names import _basics


def init(comm: Any = None, process_sets: Sequence[ProcessSet] | str | None = None) -> None:
    """Form the world of all processes of the job. If already initialised, it only binds `process_sets`.

    `process_sets` is a list that is the same on all ranks, or "dynamic" to allow `add_process_set`. `comm` is a
    communicator of mpi4py, whose processes form the world; or, where MPI is the controller, a list of ranks of
    MPI_COMM_WORLD; otherwise such a list is not used. In an elastic job, a process that has no place in the new world
    exits here (SystemExit, code 0).
    """
    _basics.init(comm, process_sets)
    atexit.unregister(_wait_at_exit)
    atexit.register(_wait_at_exit)  # handlers run in reverse order, so this one runs before those of _basics.init


def shutdown() -> None:
    """End communication on all ranks, after the programs that this thread has started. May be called again."""
    if _basics.is_initialized() and sys.exc_info()[0] is None:
        wait_for_programs()
    _basics.shutdown()


def wait_for_programs() -> None:
    """Wait until all programs that this thread has started have run: JAX runs them in order, so wait for one more."""
    jax.block_until_ready(jnp.zeros(()) + 1)


def _wait_at_exit() -> None:
    if _basics.is_initialized() and getattr(sys, "last_value", None) is None:
        wait_for_programs()


__all__ = ["init", "shutdown", "wait_for_programs"]
