"""Exchanges of several collectives, each depending on the one before, all in flight at once.

An exchange is a generator that yields collectives and is resumed with their results. Only its callers run it:
each `start` and each `finish` moves every exchange on whose collective is done. So ranks may wait for exchanges in
different orders, and most of an optimizer's exchanges run while the gradients of other layers are still being computed.
What follows from having no thread: an exchange stands still while its process does neither.

Thread rule: any thread. One lock guards the queue and the generators; it is not held while waiting.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Hashable
from typing import TypeAlias

import torch

from horovod._generic.handles import handles
from horovod._native.library import world_failure
from horovod.common.exceptions import HorovodInternalError
from horovod.torch.compression.wire import Operation

Steps: TypeAlias = Generator[Operation, torch.Tensor, torch.Tensor]

# How long a waiter checks one exchange before it checks the others again, with and without others.
_SLICE_AMONG_MANY = 0.001
_SLICE_ALONE = 0.2


class Exchange:
    """One tensor's exchange; started by its constructor."""

    def __init__(self, key: Hashable, steps: Steps) -> None:
        self.key = key
        self._steps = steps
        self.operation = next(steps)
        self.is_over = False
        self._result: torch.Tensor | None = None
        self._failure: Exception | None = None

    def advance(self) -> bool:
        """Take every step that needs no waiting; whether there was one."""
        advanced = False
        try:
            while self.operation.is_done():
                advanced = True
                self.operation = self._steps.send(self.operation.take())
        except StopIteration as end:
            self._result, self.is_over = end.value, True
        except Exception as failure:
            self.fail(failure)
        return advanced

    def fail(self, failure: Exception) -> None:
        """End the exchange; its result is the failure."""
        self._steps.close()
        self._failure, self.is_over = failure, True

    def result(self) -> torch.Tensor:
        """The result of the steps; raises their exception."""
        if self._failure is not None:
            raise self._failure
        assert self._result is not None
        return self._result


class Exchanges:
    """The exchanges of this process that are not over, oldest first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queue: dict[Hashable, Exchange] = {}
        self._world = handles.world

    def start(self, key: Hashable, name: str, steps: Steps) -> Exchange:
        """Start an exchange. ValueError if another with the same key is under way."""
        with self._lock:
            self._leave_old_world()
            for other in list(self._queue.values()):  # the oldest come first, so the rest can wait as well
                if not self._advance(other):
                    break
            if key in self._queue:
                self._advance(self._queue[key])
            if key in self._queue:
                raise ValueError(f"{name} is still being reduced: wait for it, or give this tensor another name")
            exchange = self._queue[key] = Exchange(key, steps)
            return exchange

    def finish(self, exchange: Exchange) -> torch.Tensor:
        """Wait for an exchange, moving the others on meanwhile."""
        while True:
            with self._lock:
                self._leave_old_world()
                for each in list(self._queue.values()):
                    self._advance(each)
                if exchange.is_over:
                    return exchange.result()
                oldest = next(iter(self._queue.values()))
                seconds = _SLICE_ALONE if len(self._queue) == 1 else _SLICE_AMONG_MANY
            oldest.operation.wait_for(seconds)

    def _advance(self, exchange: Exchange) -> bool:
        advanced = exchange.advance()
        if exchange.is_over:
            del self._queue[exchange.key]
        return advanced

    def _leave_old_world(self) -> None:
        """The engine has forgotten its operations, and may use their handles again."""
        if self._world == handles.world:
            return
        for exchange in self._queue.values():
            exchange.fail(HorovodInternalError("Horovod was shut down during the exchange", origin=world_failure()))
        self._queue, self._world = {}, handles.world


exchanges = Exchanges()
