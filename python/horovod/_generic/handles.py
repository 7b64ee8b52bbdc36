"""Handles of asynchronous operations, as users see them: small ints that all frameworks of the process share.

Thread rule: any thread. Dict operations and `next()` are atomic, so there is no lock.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from horovod._native import operations


class Pending:
    """A submitted operation: the engine's handle, what must stay alive until it is done, and how to get its result."""

    __slots__ = ("_result", "memory", "native")

    def __init__(self, native: int, memory: object, result: Callable[[int], Any]) -> None:
        self.native = native
        self.memory = memory
        self._result = result

    def wait(self) -> None:
        """Wait until the operation is done and raise if it failed. Interruptible."""
        operations.wait(self.native)

    def is_done(self) -> bool:
        """Whether `wait` would return at once."""
        return operations.is_done(self.native)

    def take_result(self) -> Any:
        """What `synchronize` returns; after `wait`, once."""
        return self._result(self.native)

    def release(self) -> None:
        """Let the engine forget the operation."""
        operations.release(self.native)


class Handles:
    """Numbers every operation of the process from 1, and keeps the asynchronous ones until they are synchronised."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._pending: dict[int, Pending] = {}
        self.world = 0  # counts the worlds of this process: who keeps something of one can tell when it is over

    def next_number(self) -> int:
        """The number of the next operation: its handle, and its name if the user gives none."""
        return next(self._numbers)

    def add(self, number: int, pending: Pending) -> int:
        """Keep a submitted operation until `synchronize`, and return its handle."""
        self._pending[number] = pending
        return number

    def finish(self, number: int, pending: Pending) -> Any:
        """Wait for an operation that was just submitted and return its result."""
        try:
            pending.wait()
        except Exception:
            pending.release()
            raise
        except BaseException:
            self._pending[number] = pending  # interrupted: the engine may still use the memory
            raise
        result = pending.take_result()
        pending.release()
        return result

    def poll(self, handle: int) -> bool:
        """Return whether the operation is done, so that `synchronize` will not block."""
        pending = self._pending.get(handle)
        if pending is None:
            raise ValueError(
                f"no operation has the handle {handle}: it was never given out, or is already synchronised"
            )
        return pending.is_done()

    def synchronize(self, handle: int) -> Any:
        """Wait for the operation and return its result; None if the handle is not known.

        A failed operation raises HorovodInternalError, and its handle is forgotten.
        """
        pending = self._pending.get(handle)
        if pending is None:
            return None
        try:
            pending.wait()
        except Exception:
            if self._pending.pop(handle, None) is None:
                return None  # another thread synchronised it meanwhile
            pending.release()
            raise
        if self._pending.pop(handle, None) is None:
            return None
        result = pending.take_result()
        pending.release()
        return result

    def restart(self) -> None:
        """Forget everything of the world before and number from 1 again; called when a new world has been formed."""
        for pending in self._pending.values():
            pending.release()
        self._pending.clear()
        self._numbers = itertools.count(1)
        self.world += 1


handles = Handles()
