"""The exception of a failed collective. Scripts find it in horovod.common.exceptions, with the others."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Origin:
    """Where a failure comes from: the rank that failed, not those affected by it."""

    rank: int  # of the world; -1: no single rank
    host: str
    pid: int
    kind: str  # "exception", "exit", "signal", "lost", "shutdown", "silent", "internal" or "deadline"
    exception: str = ""  # "ValueError: bad batch", if the kind is "exception"
    is_own: bool = False  # it is this process


class HorovodInternalError(RuntimeError):
    """A collective failed: ranks disagreed, a peer was lost or Horovod was shut down.

    Elastic training recovers from it: shut down, initialise again and continue from the last commit.

    `origin` says which rank failed and how, if known; else it is None.
    """

    def __init__(self, *args: object, origin: Origin | None = None) -> None:
        super().__init__(*args)
        self.origin = origin

    @property
    def origin_rank(self) -> int | None:
        """The rank that failed; None if unknown, or if it is not a single rank."""
        return None if self.origin is None or self.origin.rank < 0 else self.origin.rank


for each in (Origin, HorovodInternalError):
    each.__module__ = "horovod.common.exceptions"  # shown in tracebacks, and looked up by pickle
