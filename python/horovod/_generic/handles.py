"""Handles of asynchronous operations, in the public API: small ints shared by all frameworks of the process.

Thread rule: any thread. Dict operations and `next()` are atomic, so there is no lock.
"""

from __future__ import annotations

import contextlib
import itertools
import sys
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from horovod._native import operations


class Pending:
    """A submitted operation: the engine's handle, the objects to keep alive until it is done, and its result."""

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

    def wait_for_gradient(self) -> None:
        """As `wait`, for an optimizer, whose next use of the tensor is by the caller's stream."""
        self.wait()

    def is_over(self) -> bool:
        """Whether the engine no longer uses the memory, also because the operation's world has ended."""
        try:
            return self.is_done()
        except ValueError:
            return True

    def take_result(self) -> Any:
        """What `synchronize` returns; after `wait`, once."""
        return self._result(self.native)

    def release(self) -> None:
        """Let the engine forget the operation."""
        native, self.native = self.native, 0
        operations.release(native)

    def __del__(self, is_exiting: Callable[[], bool] = sys.is_finalizing) -> None:
        # Lost by an exception between two steps of the caller: the engine may still use the memory.
        native = getattr(self, "native", 0)  # missing if the exception came before __init__ had set it
        # At interpreter exit the world has already ended, and the modules used below may be gone.
        if not native or is_exiting():
            return
        if operations.is_over(native):
            operations.release(native)
        else:
            operations.keep(native, self.memory)


class Handles:
    """Numbers every operation of the process from 1, and keeps the asynchronous ones until they are synchronised."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._pending: dict[int, Pending] = {}
        self.world = 0  # counts the worlds of this process, so objects that belong to one can tell when it is over
        self._listeners: list[weakref.WeakMethod[Callable[[], None]]] = []

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
        except BaseException:
            if pending.is_over():
                pending.release()
            else:
                self._pending[number] = pending  # interrupted by any exception: the engine still uses the memory
            raise
        result = pending.take_result()
        pending.release()
        return result

    def poll(self, handle: int) -> bool:
        """Return whether the operation is done, so that `synchronize` will not block."""
        pending = self._pending.get(handle)
        if pending is None:
            raise ValueError(f"no operation has the handle {handle}: it was never returned, or is already synchronised")
        return pending.is_done()

    def synchronize(self, handle: int, of_gradient: bool = False) -> Any:
        """Wait for the operation and return its result; None if the handle is unknown.

        A failed operation raises HorovodInternalError, and its handle is forgotten. `of_gradient`: see
        Pending.wait_for_gradient.
        """
        pending = self._pending.get(handle)
        if pending is None:
            return None
        try:
            (pending.wait_for_gradient if of_gradient else pending.wait)()
        except Exception:
            if not pending.is_over():
                raise  # an exception of a signal handler: the handle can be synchronised again
            if self._pending.pop(handle, None) is None:
                return None  # another thread has synchronised it
            pending.release()
            raise
        if self._pending.pop(handle, None) is None:
            return None
        result = pending.take_result()
        pending.release()
        return result

    @contextlib.contextmanager
    def new_world(self, is_formed: Callable[[], bool]) -> Iterator[None]:
        """Number from 1 again, in a world that is formed inside; once it is, forget the operations of the one before.

        Operations that other threads submit once the new world exists belong to it. The memory of earlier ones must
        stay until then, because their world may still be ending. If no world is formed, nothing changes.
        """
        self.world += 1  # first: operations not yet submitted to the old world must not be any more
        numbers, pending = self._numbers, self._pending
        self._numbers, self._pending = itertools.count(1), {}
        try:
            yield
        finally:
            if is_formed():
                for each in list(pending.values()):
                    each.release()
                self._tell_listeners()
            else:
                self._numbers, self._pending = numbers, pending

    def when_restarted(self, call: Callable[[], None]) -> None:
        """Call this bound method whenever a new world has been formed, for as long as its object lives.

        For objects that keep state of a world and must drop it in the next one.
        """
        self._listeners.append(weakref.WeakMethod(call, self._listeners.remove))

    def _tell_listeners(self) -> None:
        for listener in list(self._listeners):
            call = listener()
            if call is not None:
                call()


handles = Handles()
