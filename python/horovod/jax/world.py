"""The dependence of compiled programs on the world. Shapes, ranks and sizes that were read while a function was traced
are part of its program, so it must be traced again in a world in which this process has another rank. The same holds
for the id of a process set, which another set may get later, and for the ranks' agreement on NCCL.

Thread rule: any thread.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax

from horovod._generic.handles import handles
from horovod._generic.process_sets import ProcessSet, global_process_set, when_unbound
from horovod._native import operations
from horovod._native.abi import Kind
from horovod.common.names import _basics

try:
    from jax._src.core import trace_state_clean as _is_outside_traces
except ImportError:  # another version of JAX: everything that is read may be part of a program

    def _is_outside_traces() -> bool:
        return False


_QUESTIONS = ("rank", "size", "local_rank", "local_size", "cross_rank", "cross_size")


def _place() -> tuple[int, ...]:
    return tuple(getattr(_basics, question)() for question in _QUESTIONS)


class CompiledFor:
    """Records that a program depends on the world or a process set, and drops JAX's programs when that changes."""

    def __init__(self) -> None:
        self._world: tuple[int, ...] | None = None  # this process's ranks, if programs have been compiled for them
        self._has_sets = False  # programs have been compiled for process sets
        self._choices: dict[tuple[int, int, int], bool] = {}  # what GPUs take: kind, type, reduction
        handles.when_restarted(self.check)
        when_unbound(self.drop_sets)

    def note(self) -> None:
        """A function that is being traced has read the rank or the size."""
        self._world = _place()

    def note_set(self, process_set: ProcessSet) -> None:
        """A function that is being traced uses this set, or has read whether this process is in it."""
        if process_set is not global_process_set:
            self._has_sets = True

    def accepts_on_gpu(self, kind: Kind, types: Sequence[int], op: int) -> bool:
        """Whether NCCL takes arrays of these types where they are. A function that is being traced depends on it."""
        for code in types:
            self._choices[kind, code, op] = operations.device_accepts(kind, code, op)
        return all(self._choices[kind, code, op] for code in types)

    def check(self) -> None:
        """A new world has been formed."""
        moved = self._world is not None and self._world != _place()
        if moved or any(operations.device_accepts(*of) != was for of, was in list(self._choices.items())):
            self._world = None
            self._choices.clear()
            jax.clear_caches()

    def drop_sets(self) -> None:
        """A process set has lost its id."""
        if self._has_sets:
            self._has_sets = False
            jax.clear_caches()


compiled_for = CompiledFor()


def depends_on(process_set: ProcessSet) -> None:
    """Record that the current trace, if any, depends on the ranks of this set and on this rank's position."""
    if not _is_outside_traces():
        compiled_for.note()
        compiled_for.note_set(process_set)


def _ask(question: str) -> int:
    answer: int = getattr(_basics, question)()
    if not _is_outside_traces():
        compiled_for.note()
    return answer


def rank() -> int:
    """Return this process's rank. It is a constant in a compiled function, which is compiled again when it changes."""
    return _ask("rank")


def size() -> int:
    """Return the number of ranks. It is a constant in a compiled function, which is compiled again when it changes."""
    return _ask("size")


def local_rank() -> int:
    """Return this process's rank on its host."""
    return _ask("local_rank")


def local_size() -> int:
    """Return the number of ranks on this host."""
    return _ask("local_size")


def cross_rank() -> int:
    """Return the index of this host among those that have a rank with the same local rank."""
    return _ask("cross_rank")


def cross_size() -> int:
    """Return the number of hosts that have a rank with the same local rank."""
    return _ask("cross_size")
