"""What the ranks of an elastic world decide together, so that none waits for what another skips.

All of these are collective and need a world; without one (`is_possible`) a process decides alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from horovod._generic.objects import allgather_integers, max_of_integers
from horovod._native.library import library

_MICROSECONDS = 1_000_000  # timestamps travel as integers
_REMOVED, _ADDED = 1, 2


@dataclass(frozen=True, order=True)
class Progress:
    """How far the state of a process is. The greater one is the better one to go on from."""

    commits: int = 0
    was_in_a_world: bool = False  # of two that have committed nothing, the one that others have taken over


@dataclass(frozen=True)
class Source:
    """Whose state all ranks go on from."""

    rank: int
    progress: Progress
    sync_needed: bool


def is_possible() -> bool:
    """Whether there is a world to agree in."""
    return bool(library().hvd_is_initialized())


def newest_update(previous: float, newest: float, update: int) -> tuple[float, float, int]:
    """Put together what all ranks were told about hosts: the last time all know of, the newest one, and what changed.

    One small allreduce, so that a commit costs little.
    """
    own = [
        round(previous * _MICROSECONDS),
        round(newest * _MICROSECONDS),
        int(bool(update & _REMOVED)),
        int(bool(update & _ADDED)),
    ]
    last, latest, removed, added = max_of_integers(own, "elastic.updates")
    return last / _MICROSECONDS, latest / _MICROSECONDS, removed * _REMOVED | added * _ADDED


def choose_source(progress: Progress, skip_sync: bool) -> Source:
    """Find the lowest rank among those that are furthest, and whether anybody needs its state.

    The ranks of a world need not come from the same end of the one before: where one was told in order that hosts left,
    another may have lost its peers in the middle of that very message. So nobody skips unless all can.
    """
    own = [progress.commits, int(progress.was_in_a_world), int(skip_sync)]
    everyone = allgather_integers(own, "elastic.progress")
    found = [Progress(commits, bool(old)) for commits, old, _ in everyone]
    best = max(found)
    all_can_skip = all(skip for _, _, skip in everyone) and all(each == best for each in found)
    return Source(found.index(best), best, not all_can_skip)
