"""Joint decisions of the ranks of an elastic world, so that none waits for a call that another skips.

All of these are collective and need a world; without one (`is_possible`) a process decides alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from horovod._generic.objects import allgather_integers, allgather_object, max_of_integers
from horovod._native.library import library

_MICROSECONDS = 1_000_000  # timestamps travel as integers
_REMOVED, _ADDED = 1, 2


@dataclass(frozen=True)
class Progress:
    """The progress of a process's state, and its job."""

    commits: int = 0
    was_in_a_world: bool = False  # so others had the same state, and may have continued from it
    job: int = field(default=0, compare=False)  # drawn when the job began, and stored in its files
    run: int = field(default=0, compare=False)  # drawn at every start of the job
    is_from_file: bool = field(default=False, compare=False)

    def order(self) -> tuple[bool, int]:
        """The greater one is the better one to continue from. Members of a world take precedence over files."""
        return self.was_in_a_world, self.commits


@dataclass(frozen=True)
class FileFound:
    """The file that a process should resume from."""

    description: str
    is_usable: bool


@dataclass(frozen=True)
class Source:
    """The rank whose state all ranks continue with."""

    rank: int
    progress: Progress
    sync_needed: bool


def is_possible() -> bool:
    """Whether there is a world, so that ranks can agree."""
    return bool(library().hvd_is_initialized())


def newest_update(previous: float, newest: float, update: int) -> tuple[float, float, int]:
    """Combine the ranks' notices about hosts: the latest time known to all, the newest one, and the changes.

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


def choose_source(progress: Progress, skip_sync: bool, file: FileFound | None = None) -> Source:
    """Find the lowest rank among those that are furthest, and whether any rank needs its state.

    The ranks of a world may have left the previous one in different ways: one may have been told normally that hosts
    left, while another lost its peers during that message. So no rank skips unless all can. ValueError on all ranks if
    only files could have a state, and none does.
    """
    cannot_read = file is not None and not file.is_usable
    flags = [progress.was_in_a_world, skip_sync, progress.is_from_file, cannot_read]
    own = [progress.commits, progress.job, progress.run, *map(int, flags)]
    everyone = allgather_integers(own, "elastic.progress")
    found = [Progress(commits, bool(old), job, run, bool(read)) for commits, job, run, old, _, read, _ in everyone]
    if not any(each.was_in_a_world for each in found):
        _check_files(found, any(unusable for *_, unusable in everyone), file)
    best = max(found, key=Progress.order)
    all_can_skip = all(skip for _, _, _, _, skip, _, _ in everyone) and all(each == best for each in found)
    return Source(found.index(best), best, not all_can_skip)


def _check_files(found: list[Progress], some_are_unusable: bool, file: FileFound | None) -> None:
    """At the start of the job: find the one state in the files to continue from. Collective if there is none."""
    jobs = {each.job for each in found if each.is_from_file}
    if len(jobs) == 1 or not (jobs or some_are_unusable):
        return
    everyones = allgather_object(file.description if file else None, "elastic.files")
    told = "; ".join(f"rank {rank}: {text}" for rank, text in enumerate(everyones) if text)
    if jobs:
        raise ValueError(
            f"the ranks found files of {len(jobs)} different jobs to resume from, and all would take over the state of "
            f"one of them. Remove those that are not of this job. {told}"
        )
    raise ValueError(f"no rank has a file that it can resume from. {told}")
