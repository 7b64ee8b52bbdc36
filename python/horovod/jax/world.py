"""What compiled programs know of the world. Shapes, ranks and sizes that were read while a function was traced are part
of its program, so a world in which this process has another place has to trace again. So is the number of a process
set, which another set may have later; and whether the ranks have agreed on NCCL.

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
except ImportError:  # a JAX that keeps it elsewhere: whatever is read may be part of a program

    def _is_outside_traces() -> bool:
        return False


_QUESTIONS = ("rank", "size", "local_rank", "local_size", "cross_rank", "cross_size")


def _place() -> tuple[int, ...]:
    return tuple(getattr(_basics, question)() for question in _QUESTIONS)


class CompiledFor:
    """Notes that a program depends on the world or on a process set, and drops JAX's programs when that is another."""

    def __init__(self) -> None:
        self._world: tuple[int, ...] | None = None  # this process's place, if programs have been compiled for it
        self._has_sets = False  # programs have been compiled for process sets
        self._choices: dict[tuple[int, int, int], bool] = {}  # what GPUs take: kind, type, reduction
        handles.when_restarted(self.check)
        when_unbound(self.drop_sets)

    def note(self) -> None:
        """A function that is being traced has asked for the rank or the size."""
        self._world = _place()

    def note_set(self, process_set: ProcessSet) -> None:
        """A function that is being traced uses this set, or has asked whether this process is in it."""
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
        """A process set has lost its number."""
        if self._has_sets:
            self._has_sets = False
            jax.clear_caches()


compiled_for = CompiledFor()


def depends_on(process_set: ProcessSet) -> None:
    """Say that what is traced now, if anything is, depends on the ranks of this set and on this one's place in it."""
    if not _is_outside_traces():
        compiled_for.note()
        compiled_for.note_set(process_set)


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
