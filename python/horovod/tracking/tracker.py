"""Collects what is to be logged of a training: step times, Horovod's metrics, and values of the program.

Thread rule: the thread that trains.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from typing import Any

import horovod.numpy as hvd
from horovod.tracking.writers import Writer


def flatten(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """The finite numbers of nested mappings, with names joined by slashes; everything else is left out."""
    for name, value in values.items():
        path = f"{prefix}/{name}" if prefix else str(name)
        if isinstance(value, Mapping):
            yield from flatten(value, path)
        elif isinstance(value, (bool, int, float)) and math.isfinite(value):
            yield path, float(value)


class Tracker:
    """Logs every `every` steps to the writers, on rank 0 or on all ranks; on the others `step` costs almost nothing."""

    def __init__(self, *writers: Writer, every: int = 10, all_ranks: bool = False) -> None:
        if every < 1:
            raise ValueError(f"every must be at least 1, not {every}")
        self.writers = writers
        self.every = every
        self.all_ranks = all_ranks
        self.steps = 0
        self._open: list[Writer] = []
        self._since: float | None = None
        self._steps_since = 0

    def step(self, **values: float) -> None:
        """A step is over. `values` are logged with the metrics, if this step is one that is logged."""
        self.steps += 1
        self._steps_since += 1
        if not (self.all_ranks or hvd.rank() == 0):
            return
        now = time.monotonic()
        if self._since is None:  # the first step may have compiled something
            self._since, self._steps_since = now, 0
        if self.steps % self.every != 0:
            return
        self.log(values, now)

    def log(self, values: Mapping[str, float], now: float | None = None) -> None:
        """Log now."""
        logged = dict(flatten(values))
        now = time.monotonic() if now is None else now
        if self._since is not None and self._steps_since > 0 and now > self._since:
            logged["horovod/step_seconds"] = (now - self._since) / self._steps_since
            logged["horovod/steps_per_second"] = self._steps_since / (now - self._since)
        self._since, self._steps_since = now, 0
        logged["horovod/size"] = float(hvd.size())
        metrics = getattr(hvd, "metrics", None)
        if metrics is not None:
            logged.update(flatten(metrics(), "horovod"))
        for writer in self._opened():
            writer.write(logged, self.steps)

    def _opened(self) -> list[Writer]:
        if not self._open:
            for writer in self.writers:
                writer.open(hvd.rank(), self.all_ranks and hvd.size() > 1)
                self._open.append(writer)
        return self._open

    def close(self) -> None:
        """Write what is queued, and end the runs that were started here."""
        for writer in self._open:
            writer.close()
        self._open = []
