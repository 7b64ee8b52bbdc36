"""Collects what is to be logged of a training: step times, numbers of the job, and values of the program.

Thread rule: the thread that trains.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

from horovod.common.basics import HorovodBasics
from horovod.tracking.metrics import flatten, job_metrics
from horovod.tracking.writers import Writer


class Tracker:
    """Logs every `every` steps to the writers, on rank 0 or on all ranks; on the others `step` costs almost nothing.

    `steps` counts the steps. A program that continues an earlier run sets it to the number of steps done before.
    """

    def __init__(self, *writers: Writer, every: int = 10, all_ranks: bool = False) -> None:
        if every < 1:
            raise ValueError(f"every must be at least 1, not {every}")
        if not writers:
            raise ValueError("a Tracker needs a writer, as TensorBoard('runs/one')")
        self.writers = writers
        self.every = every
        self.all_ranks = all_ranks
        self.steps = 0
        self._basics = HorovodBasics()
        self._open: list[Writer] = []
        self._last: float | None = None  # end of the step before
        self._seconds: list[float] = []  # of the steps since the last that was logged

    def step(self, **values: Any) -> None:
        """A step is over. `values` are logged with the rest, if this step is one that is logged."""
        self.step_with(lambda: values)

    def step_with(self, values: Callable[[], Mapping[str, Any]]) -> None:
        """As `step`, with values that are only computed for a step that is logged."""
        self.steps += 1
        if not (self.all_ranks or self._basics.rank() == 0):
            return
        now = time.monotonic()
        if self._last is not None:
            self._seconds.append(now - self._last)
        self._last = now
        if self.steps % self.every == 0:
            self._log(values())
            self._last = time.monotonic()  # logging belongs to no step

    def _log(self, values: Mapping[str, Any]) -> None:
        logged = dict(flatten(values))
        if self._seconds:
            mean = sum(self._seconds) / len(self._seconds)
            logged["horovod/step_seconds"] = mean
            logged["horovod/slowest_step_seconds"] = max(self._seconds)
            if mean > 0:
                logged["horovod/steps_per_second"] = 1 / mean
            self._seconds.clear()
        logged.update(job_metrics(self._basics))
        if not self._open:
            rank = self._basics.rank() if self.all_ranks and self._basics.size() > 1 else None
            for writer in self.writers:
                writer.open(rank)
                self._open.append(writer)
        for writer in self._open:
            writer.write(logged, self.steps)

    def close(self) -> None:
        """Write what is queued, and end the runs that were started here. May be called again."""
        while self._open:
            self._open.pop().close()

    def __enter__(self) -> Tracker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
