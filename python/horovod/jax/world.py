"""What compiled programs know of the world. Shapes, ranks and sizes that were read while a function was traced are part
of its program, so a new world with another size or rank has to trace again.

Thread rule: any thread.
"""

from __future__ import annotations

import jax

from horovod._generic.handles import handles
from horovod.common.names import _basics

try:
    from jax._src.core import trace_state_clean as _is_outside_traces
except ImportError:  # a JAX that keeps it elsewhere: whatever is read may be part of a program

    def _is_outside_traces() -> bool:
        return False


class CompiledFor:
    """Notes that a program depends on the world, and drops JAX's programs when that is another one."""

    def __init__(self) -> None:
        self._world: tuple[int, int] | None = None  # rank and size that programs have been compiled for
        handles.when_restarted(self.check)

    def note(self) -> None:
        """A function that is being traced has asked for the rank or the size."""
        self._world = (_basics.rank(), _basics.size())

    def check(self) -> None:
        """A new world has been formed."""
        if self._world is not None and self._world != (_basics.rank(), _basics.size()):
            self._world = None
            jax.clear_caches()


compiled_for = CompiledFor()


def _ask(question: str) -> int:
    answer: int = getattr(_basics, question)()
    if not _is_outside_traces():
        compiled_for.note()
    return answer


def rank() -> int:
    """Return this process's rank. In a compiled function it is a constant, and compiled again when it changes."""
    return _ask("rank")


def size() -> int:
    """Return the number of ranks. In a compiled function it is a constant, and compiled again when it changes."""
    return _ask("size")


def local_rank() -> int:
    """Return this process's rank on its host."""
    return _ask("local_rank")


def local_size() -> int:
    """Return the number of ranks on this host."""
    return _ask("local_size")


def cross_rank() -> int:
    """Return the place of this host among those that have a rank with the same local rank."""
    return _ask("cross_rank")


def cross_size() -> int:
    """Return the number of hosts that have a rank with the same local rank."""
    return _ask("cross_size")
