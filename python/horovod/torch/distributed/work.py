"""Waiting for an operation, as torch.distributed wants it. Thread rule: any thread."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
from torch._C._distributed_c10d import Work

from horovod._native import operations
from horovod._native.abi import Code
from horovod._native.library import library
from horovod.torch.distributed import futures
from horovod.torch.distributed.errors import TimeoutError, error_of

_OK, _TIMED_OUT = int(Code.OK), int(Code.TIMED_OUT)
_SLICE = 0.2  # seconds; between two of them Python delivers signals, such as Ctrl-C


class BaseWork(Work):
    """What can be waited for, and ends with tensors or an error. The methods below need `_advance`."""

    def __init__(self, verb: str, outputs: Sequence[Any], seconds: float, source: int = -1) -> None:
        super().__init__()
        self._verb = verb
        self._outputs = outputs
        self._seconds = seconds  # how long the operation may take
        self._begin = 0.0  # when the first wait began
        self._done = False
        self._error: Exception | None = None
        self._future: Any = None
        self._source = source

    def _advance(self, seconds: float) -> bool:
        """Wait so long at most; whether it is done."""
        raise NotImplementedError

    def wait(self, timeout: timedelta | None = None) -> bool:
        if not self._done and not self._advance(_SLICE):
            self._wait_long(timeout)
        if self._error is not None:
            raise self._error
        return True

    def _wait_long(self, timeout: timedelta | None) -> None:
        futures.refuse_to_block_callbacks()
        seconds = self._seconds
        if timeout is not None and timeout.total_seconds() > 0:
            seconds = timeout.total_seconds()
        end = time.monotonic() + seconds - _SLICE
        while not self._done:
            left = end - time.monotonic()
            if left <= 0:
                raise self.timed_out(seconds)
            self._advance(min(_SLICE, left))

    def timed_out(self, seconds: float) -> Exception:
        return TimeoutError(
            f"Timed out waiting {seconds * 1000:.0f}ms for {self._verb} operation to complete: "
            "a rank has not submitted it, or has stopped"
        )

    def synchronize(self) -> None:
        self.wait()

    def is_completed(self) -> bool:
        return self._done or self._advance(0.0)

    def is_success(self) -> bool:
        return self.is_completed() and self._error is None

    def exception(self) -> Exception | None:
        return self._error

    def result(self) -> Any:
        self.wait()
        return self._outputs

    def source_rank(self) -> int:
        self.wait()
        return self._source

    _source_rank = source_rank

    def get_future(self) -> Any:
        if self._future is None:
            caller = sys._getframe(1).f_code
            self._future = futures.of(self, "get_future" not in caller.co_names)
        return self._future

    def block_current_stream(self) -> None:
        self.wait()


class EngineWork(BaseWork):
    """One handle of the engine. `memory` stays until the engine has done with it, also if the work is dropped."""

    def __init__(
        self,
        verb: str,
        handle: int,
        memory: Any,
        outputs: Sequence[Any],
        seconds: float,
        finish: Callable[[int], None] | None = None,
        source: int = -1,
    ) -> None:
        super().__init__(verb, outputs, seconds, source)
        self.handle = handle
        self._memory = memory
        self._finish = finish
        self._lock = threading.Lock()

    def _advance(self, seconds: float) -> bool:
        code = library().hvd_wait(self.handle, seconds)
        if code == _TIMED_OUT:
            return False
        self.settle(code)
        return True

    def settle(self, code: int) -> None:
        """The operation has ended with this code, whose text is that of this thread's last failure."""
        failure = None if code == _OK else error_of(code)
        with self._lock:
            if self._done:  # another thread has come first, and released the handle
                return
            if failure is None and self._finish is not None:
                try:
                    with torch.no_grad():
                        self._finish(self.handle)
                except Exception as error:
                    failure = error
            self._error = failure
            self._memory = self._finish = None
            operations.release(self.handle)
            self._done = True

    def end(self) -> None:
        """As `settle`, once the handle is known to be done."""
        if not self._done:
            self._advance(0.0)

    def __del__(self, is_exiting: Callable[[], bool] = sys.is_finalizing) -> None:
        if getattr(self, "_done", True) or is_exiting():
            return
        if operations.is_over(self.handle):
            operations.release(self.handle)
        else:
            operations.keep(self.handle, self._memory)


class DoneWork(BaseWork):
    """An operation that was over before it began, or while it was submitted."""

    def __init__(self, outputs: Sequence[Any], error: Exception | None = None, source: int = -1) -> None:
        super().__init__("", outputs, 0.0, source)
        self._done = True
        self._error = error

    def _advance(self, seconds: float) -> bool:
        return True


class StepsWork(BaseWork):
    """Several operations one after another: each step gives the next one, until there is none."""

    def __init__(
        self, verb: str, first: BaseWork, outputs: Sequence[Any], seconds: float, follow: Callable[[Any], Any]
    ) -> None:
        super().__init__(verb, outputs, seconds)
        self._current: BaseWork = first
        self._follow = follow
        self._lock = threading.RLock()

    def _advance(self, seconds: float) -> bool:
        current = self._current
        if not current._done and not current._advance(seconds):
            return self._done
        with self._lock:
            if self._done or self._current is not current:
                return self._done
            try:
                following = None if current._error is not None else self._follow(current)
            except Exception as error:
                self._error = error
                following = None
            if following is not None:
                self._current = following
                return False
            self._source = current._source
            self._error = self._error or current._error
            self._done = True
        return True


class AllWork(BaseWork):
    """Several operations that are waited for together."""

    def __init__(self, works: Sequence[BaseWork]) -> None:
        super().__init__("coalesced", [], max((work._seconds for work in works), default=0.0))
        self._works = works
        self._outputs = [output for work in works for output in work._outputs]

    def _advance(self, seconds: float) -> bool:
        for work in self._works:
            if not work._done and not work._advance(seconds):
                return False
        self._error = next((work._error for work in self._works if work._error is not None), None)
        self._done = True
        return True
