"""Operations on an accelerator that are synchronised by a stream, not by the host.

A stream that uses the result is put behind the operation, and the caller goes on. By default that is done for the
gradients of an optimizer; HOROVOD_ENABLE_ASYNC_COMPLETION=1 does it for every operation whose output the caller owns,
and =0 for none. In elastic jobs the host always waits, because a step on the data of a failed operation must not be
committed. Otherwise such a failure is raised by the next operation.

Thread rule: any thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from horovod._generic.handles import Pending
from horovod._native import operations
from horovod._native.abi import Request

_Key = tuple[int, bytes]  # process set and name

_lock = threading.Lock()  # guards the next two
_behind: dict[
    int, tuple[object, list[_Key]]
] = {}  # handles that streams wait for, their memory and names; oldest first
_by_name: dict[_Key, int] = {}


def _key(request: Request) -> _Key:
    return request.process_set, request.name


def _forget(native: int) -> None:
    """With the lock held."""
    _, keys = _behind.pop(native)
    for key in keys:
        if _by_name.get(key) == native:
            del _by_name[key]
    operations.release(native)


def _keep(native: int, memory: object, keys: list[_Key]) -> None:
    """Keep the memory until the operation has ended on the device; operations mostly end in the order of submission."""
    with _lock:
        while _behind and operations.is_over(oldest := next(iter(_behind))):
            _forget(oldest)
        _behind[native] = memory, keys
        for key in keys:
            _by_name[key] = native


def free_names(requests: Sequence[Request]) -> None:
    """Wait for operations of these names that streams wait for: a name can be used again when its operation has ended.

    An operation that has failed meanwhile raises its error here.
    """
    for key in map(_key, requests):
        native = _by_name.get(key)
        if native is None:
            continue
        if not operations.is_over(native):
            operations.wait(native)
        with _lock:
            if native in _behind:
                _forget(native)


class StreamPending(Pending):
    """An operation on tensors of an accelerator. `stream`: tells the one that the caller uses there at present."""

    __slots__ = ("_is_ordered", "_keys", "_stream")

    def __init__(
        self,
        native: int,
        memory: object,
        result: Callable[[int], Any],
        requests: Sequence[Request],
        stream: Callable[[], int],
    ) -> None:
        super().__init__(native, memory, result)
        self._keys = [_key(request) for request in requests]
        self._stream = stream
        self._is_ordered = False

    def order(self) -> None:
        """Wait until the operation is launched, and put the caller's stream behind it."""
        operations.wait_on_stream(self.native, self._stream())
        self._is_ordered = True

    def wait(self) -> None:
        if operations.completes_on_stream(of_gradients=False):
            self.order()
        else:
            super().wait()

    def wait_for_gradient(self) -> None:
        if operations.completes_on_stream(of_gradients=True):
            self.order()
        else:
            super().wait()

    def is_done(self) -> bool:
        if super().is_done():
            return True
        if not operations.completes_on_stream(of_gradients=False):
            return False
        self._is_ordered = operations.is_launched(self.native, self._stream()) or self._is_ordered
        return self._is_ordered

    def is_over(self) -> bool:
        return operations.is_over(self.native)

    def release(self) -> None:
        if self._is_ordered and not operations.is_over(self.native):
            native, self.native = self.native, 0
            _keep(native, self.memory, self._keys)
        else:
            super().release()
