"""State that a training job keeps when the world changes, in memory and optionally in a file."""

from __future__ import annotations

import os
import queue
import secrets
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from enum import IntFlag
from pathlib import Path
from typing import Any

import cloudpickle

from horovod._generic.objects import broadcast_object
from horovod._native import elastic
from horovod._native.library import library
from horovod.common.elastic import agreement, durable
from horovod.common.elastic.agreement import FileFound, Progress
from horovod.common.exceptions import HostsUpdatedInterrupt


class HostUpdateResult(IntFlag):
    """What happened to the hosts; the numbers are those of the driver's messages."""

    no_update = 0
    removed = 1
    added = 2
    mixed = removed | added


class State:
    """State that a training job keeps when the world changes. Subclasses define how to save, restore and sync it.

    `bcast_object(obj)` returns rank 0's object on every rank.
    """

    sync_root = 0  # `sync` copies the state of this rank; the loop finds the most advanced one
    commit_seconds = 0.0  # time that the last commit cost this rank, without waiting for the others

    def __init__(self, bcast_object: Callable[[Any], Any], get_rank: Callable[[], int]) -> None:
        self._bcast_object = bcast_object
        self._rank = get_rank
        self._host_messages: queue.Queue[tuple[float, int]] = queue.Queue()
        self._last_updated_timestamp: float = 0
        self._reset_callbacks: list[Callable[[], None]] = []
        self._is_between_worlds = False
        self._progress = Progress(job=secrets.randbits(62), run=secrets.randbits(62))
        self._file_found: FileFound | None = None  # by `resume_from`, until the ranks have agreed on a state
        self._durable: durable.DurableCommits | None = None

    def register_reset_callbacks(self, callbacks: list[Callable[[], None]]) -> None:
        """Add functions to call after every change of the world, in order."""
        self._reset_callbacks.extend(callbacks)

    def before_reset(self) -> None:
        """A new world is about to be formed, so earlier notices about hosts are obsolete.

        Later notices may already be about the new world, and are kept.
        """
        self._host_messages = queue.Queue()
        self._is_between_worlds = True

    def on_reset(self) -> None:
        """Adapt to a new world: called after it was formed, before `sync`."""
        if not self._is_between_worlds:
            self._host_messages = queue.Queue()
        self._is_between_worlds = False
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def on_hosts_updated(self, timestamp: float, update_res: int) -> None:
        """Record that hosts changed. Called from the thread that listens to the launcher."""
        self._host_messages.put((timestamp, update_res))

    def commit(self) -> None:
        """Save the state, then check whether the world must change. Costs a copy of the state and a small allreduce."""
        began = time.perf_counter()
        self._save_as_next()
        self.commit_seconds = time.perf_counter() - began
        library().hvd_count_commit()
        self._interrupt_if_hosts_changed(is_saved=True)

    def check_host_updates(self) -> None:
        """Raise HostsUpdatedInterrupt on all ranks if any was told of a change. Collective.

        Every rank is at the same step here, so the current state is saved first: new workers get it.
        """
        self._interrupt_if_hosts_changed(is_saved=False)

    def save(self) -> None:
        """Keep the current values, in memory, for `restore`."""
        raise NotImplementedError

    def restore(self) -> None:
        """Restore the last saved values."""
        raise NotImplementedError

    def sync(self) -> None:
        """Copy the state of the rank `sync_root`. Collective."""
        raise NotImplementedError

    def reset(self) -> None:
        """Adapt what depends on rank and size, such as a data partition."""

    def progress(self) -> Progress:
        """The progress of this state, to find the most advanced rank."""
        return self._progress

    def on_settled(self, progress: Progress) -> None:
        """Record that all ranks of the world now have the same state, with this progress."""
        found = self._file_found
        if found is not None and not (found.is_usable and progress.job == self._progress.job):
            whose = "the running job" if progress.was_in_a_world else "another rank's file"
            _warn(f"this process continues with the state of {whose}, commit {progress.commits}. {found.description}")
        self._file_found = None
        self._progress = replace(progress, was_in_a_world=True)

    # ---- in a file

    def save_to(self, path: str | os.PathLike[str], every: int = 1, job: str | None = None) -> None:
        """Have rank 0 also write every n-th commit to a file, in the background; the same path on all ranks.

        A commit is skipped while the previous one is still being written; the last one is always written. `job` names
        the job in the file; the default is the name of the script.
        """
        if every < 1:
            raise ValueError(f"every must be 1 or more, not {every}")
        self.durable_values()  # says at once if it is not supported
        self._durable = durable.DurableCommits(Path(path), every, durable.name_of_script() if job is None else job)

    def resume_from(self, path: str | os.PathLike[str], job: str | None = None) -> bool:
        """Continue from a file that `save_to` wrote; False if there is none. Call before the training function.

        Ranks without a file, or with an older one, copy the state of one that has it; if the job is already running,
        all copy its state, regardless of the file. A file of a job with another name than `job`, or than this script,
        is rejected, as is a damaged one: with a ValueError, which a worker of an elastic job raises only when all ranks
        have found that no rank has a state.
        """
        name = durable.name_of_script() if job is None else job
        try:
            origin, values = durable.read(Path(path))
            if origin.name != name:
                raise ValueError(
                    f'{path} holds {origin}, and this is "{name}": choose another file, or name the job to go on from, '
                    f'as in resume_from(..., job="{origin.name}")'
                )
            self.load_durable_values(values)
        except FileNotFoundError:
            return False
        except Exception as error:
            if not (elastic.is_worker() and agreement.is_possible()):
                raise
            self._file_found = FileFound(f"{path} was not used: {error}", is_usable=False)
            return False
        self._file_found = FileFound(f"{path} holds {origin}", is_usable=True)
        self._progress = Progress(origin.commits, job=origin.job, run=self._progress.run, is_from_file=True)
        return True

    def finish_saving(self) -> None:
        """Wait until the last commit is in the file, if commits are written at all."""
        if self._durable is None:
            return
        self._durable.finish()
        if self._durable.written not in (-1, self._progress.commits):
            self._durable.start(self._origin(), self.durable_values())
            self._durable.finish()

    def durable_values(self) -> Any:
        """The last saved values, as an object that can be pickled and no longer changes."""
        raise NotImplementedError(f"{type(self).__name__} cannot be saved to a file: it has no durable_values")

    def load_durable_values(self, values: Any) -> None:
        """Use the result of `durable_values` as the current and the last saved values."""
        raise NotImplementedError

    # ----

    def _save_as_next(self) -> None:
        self.save()
        self._progress = replace(self._progress, commits=self._progress.commits + 1)
        if self._durable is not None and self._durable.is_due(self._progress.commits) and self._rank() == 0:
            self._durable.start(self._origin(), self.durable_values())

    def _origin(self) -> durable.Origin:
        return durable.Origin(self._progress.commits, self._progress.job, self._progress.run)

    def _interrupt_if_hosts_changed(self, is_saved: bool) -> None:
        newest, update = self._last_updated_timestamp, HostUpdateResult.no_update
        while not self._host_messages.empty():
            timestamp, result = self._host_messages.get()
            if timestamp > newest:
                newest = timestamp
                update |= HostUpdateResult(result)
        known = (self._last_updated_timestamp, newest, int(update))
        previous, newest, agreed = (
            agreement.newest_update(*known) if agreement.is_possible() else self._bcast_object(known)
        )
        self._last_updated_timestamp = newest
        if newest > previous:
            if not is_saved:
                self._save_as_next()
            raise HostsUpdatedInterrupt(agreed == HostUpdateResult.removed)


def _warn(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


class ObjectState(State):
    """State of plain objects: every keyword argument is an attribute. Values are saved by reference, not copied."""

    def __init__(self, bcast_object: Callable[[Any], Any], get_rank: Callable[[], int], **kwargs: Any) -> None:
        super().__init__(bcast_object, get_rank)
        self._saved_state = kwargs
        self._assign_saved()

    def save(self) -> None:
        """Save the attributes' current values."""
        self._saved_state = {name: getattr(self, name) for name in self._saved_state}

    def restore(self) -> None:
        """Set the attributes to the values last saved."""
        self._assign_saved()

    def sync(self) -> None:
        """Set the attributes to the values last saved on the rank `sync_root`."""
        if self._saved_state:
            self._saved_state = self._values_of_root(self._saved_state)
            self._assign_saved()

    def durable_values(self) -> Any:
        """The saved values, pickled: they may be changed in place while a file is written."""
        return {"objects": cloudpickle.dumps(self._saved_state)}

    def load_durable_values(self, values: Any) -> None:
        """Set the attributes of this state; others in the file are ignored."""
        objects = cloudpickle.loads(values["objects"])
        self._saved_state |= {name: value for name, value in objects.items() if name in self._saved_state}
        self._assign_saved()

    def _values_of_root(self, values: Any) -> Any:
        if self.sync_root == 0:
            return self._bcast_object(values)
        return broadcast_object(values, self.sync_root, name="elastic.state")

    def _assign_saved(self) -> None:
        for name, value in self._saved_state.items():
            setattr(self, name, value)
