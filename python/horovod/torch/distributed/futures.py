"""Futures of operations, for code that attaches callbacks or waits in C++ (DDP's reducer does).

Callbacks of users may block, for example on another collective. They must not run on the engine's thread, and not on
one that others need. So futures that Python code asks for are completed by threads of a pool, which grows when all of
them are inside callbacks. Futures that C++ code asks for are completed at once, by the engine's thread in the callback
of `hvd_when_done`: the callbacks of C++ code do not block.

Thread rule: any thread.
"""

from __future__ import annotations

import heapq
import itertools
import queue
import threading
import time
from typing import Any

import torch

from horovod._native.abi import DONE, Code
from horovod._native.library import library
from horovod.torch.distributed.errors import error_of

_OK = int(Code.OK)
_here = threading.local()  # .completes: this thread is inside the engine's callback


def refuse_to_block_callbacks() -> None:
    """An error instead of a deadlock: the engine waits for its own callback."""
    if getattr(_here, "completes", False):
        raise RuntimeError("a callback on a future cannot wait for another collective here: get the future in Python")


class _Promise:
    """A work with its future. C++ takes an exception that is set for a value; raised in a callback it is an error."""

    __slots__ = ("first", "future", "lock", "work")

    def __init__(self, work: Any) -> None:
        self.work = work
        self.lock = threading.Lock()
        self.first: Any = torch.futures.Future()
        self.future = self.first.then(self._check)

    def _check(self, _: Any) -> Any:
        if self.work._error is not None:
            raise self.work._error
        return self.work._outputs

    def keep(self) -> None:
        with self.lock:
            first, self.first = self.first, None
        if first is not None:
            first.set_result(None)


_promises: dict[int, tuple[_Promise, bool]] = {}  # by handle; of those that the engine will complete


def _on_done(context: Any, handle: int, code: int) -> None:
    entry = _promises.pop(handle, None)
    if entry is None:
        return
    promise, is_for_native_code = entry
    if not is_for_native_code:
        _pool.put(promise)
        return
    _here.completes = True
    try:
        promise.work.end()
        promise.keep()
    finally:
        _here.completes = False


_ON_DONE = DONE(_on_done)


def of(work: Any, is_for_native_code: bool) -> Any:
    """The future of a work."""
    promise = _Promise(work)
    if work._done:
        promise.keep()
        return promise.future
    handle = getattr(work, "handle", None)
    if handle is None:  # several operations: a thread has to wait for them
        _pool.wait_for(promise)
        return promise.future
    _promises[handle] = (promise, is_for_native_code)
    _pool.limit(promise, work)
    code = library().hvd_when_done(handle, _ON_DONE, None)
    if code != _OK:
        _promises.pop(handle, None)
        if not work._done:
            raise error_of(code)
        promise.keep()
    return promise.future


class _Pool:
    """Threads that complete futures and run their callbacks; one of them is always free."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._free = 0  # threads that wait for work, less what is queued
        self._deadlines: list[tuple[float, int, _Promise]] = []
        self._numbers = itertools.count()
        self._has_watchdog = False

    def put(self, promise: _Promise) -> None:
        self._run(lambda: (promise.work.end(), promise.keep()))

    def wait_for(self, promise: _Promise) -> None:
        def wait() -> None:
            try:
                promise.work.wait()
            except Exception as error:
                promise.work._error = error
            promise.keep()

        self._run(wait)

    def _run(self, job: Any) -> None:
        with self._lock:
            self._free -= 1
            grows = self._free < 0
            if grows:
                self._free += 1
        self._queue.put(job)
        if grows:
            threading.Thread(target=self._serve, name="hvd-futures", daemon=True).start()

    def _serve(self) -> None:
        while True:
            job = self._queue.get()
            job()
            del job
            with self._lock:
                self._free += 1
                if self._free > 8:  # enough
                    self._free -= 1
                    return

    def limit(self, promise: _Promise, work: Any) -> None:
        """Nobody may wait in Python, so a thread sees to the time limit."""
        entry = (time.monotonic() + work._seconds, next(self._numbers), promise)
        with self._lock:
            if len(self._deadlines) > 64:  # most are over
                self._deadlines = [each for each in self._deadlines if each[2].first is not None]
                heapq.heapify(self._deadlines)
            heapq.heappush(self._deadlines, entry)
            starts, self._has_watchdog = not self._has_watchdog, True
        if starts:
            threading.Thread(target=self._watch, name="hvd-deadlines", daemon=True).start()

    def _watch(self) -> None:
        while True:
            time.sleep(1.0)
            late = []
            with self._lock:
                while self._deadlines and (
                    self._deadlines[0][2].first is None or self._deadlines[0][0] <= time.monotonic()
                ):
                    late.append(heapq.heappop(self._deadlines)[2])
            for promise in late:
                if promise.first is not None and not promise.work._done:
                    promise.work._error = promise.work.timed_out(promise.work._seconds)
                    promise.keep()


_pool = _Pool()
