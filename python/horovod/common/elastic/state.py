"""What a training job keeps when the world changes, in memory and, if wanted, in a file."""

from __future__ import annotations

import os
import queue
import time
from collections.abc import Callable
from enum import IntFlag
from pathlib import Path
from typing import Any

import cloudpickle

from horovod._generic.objects import broadcast_object
from horovod.common.elastic import agreement, durable
from horovod.common.elastic.agreement import Progress
from horovod.common.exceptions import HostsUpdatedInterrupt


class HostUpdateResult(IntFlag):
    """What happened to the hosts; the numbers are those of the driver's messages."""

    no_update = 0
    removed = 1
    added = 2
    mixed = removed | added


class State:
    """What a training job keeps when the world changes. Subclasses say how to save, restore and sync it.

    `bcast_object(obj)` returns rank 0's object on every rank.
    """

    sync_root = 0  # the rank whose state `sync` takes over; the loop finds the one that is furthest
    commit_seconds = 0.0  # what the last commit cost this rank, without waiting for the others

    def __init__(self, bcast_object: Callable[[Any], Any], get_rank: Callable[[], int]) -> None:
        self._bcast_object = bcast_object
        self._rank = get_rank
        self._host_messages: queue.Queue[tuple[float, int]] = queue.Queue()
        self._last_updated_timestamp: float = 0
        self._reset_callbacks: list[Callable[[], None]] = []
        self._is_between_worlds = False
        self._progress = Progress()
        self._durable: durable.DurableCommits | None = None

    def register_reset_callbacks(self, callbacks: list[Callable[[], None]]) -> None:
        """Add functions to call after every change of the world, in order."""
        self._reset_callbacks.extend(callbacks)

    def before_reset(self) -> None:
        """The world is about to be formed anew, so what was said about hosts until now is done with.

        What is said from now on may be about the new world already, and is kept.
        """
        self._host_messages = queue.Queue()
        self._is_between_worlds = True

    def on_reset(self) -> None:
        """Adapt to a new world: after it was formed, before `sync`."""
        if not self._is_between_worlds:
            self._host_messages = queue.Queue()
        self._is_between_worlds = False
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def on_hosts_updated(self, timestamp: float, update_res: int) -> None:
        """Note that hosts changed. Called from the thread that listens to the driver."""
        self._host_messages.put((timestamp, update_res))

    def commit(self) -> None:
        """Save the state, then see whether the world has to change. Costs a copy of the state and a small allreduce."""
        began = time.perf_counter()
        self._save_as_next()
        self.commit_seconds = time.perf_counter() - began
        self._interrupt_if_hosts_changed(is_saved=True)

    def check_host_updates(self) -> None:
        """Raise HostsUpdatedInterrupt on all ranks if any was told of a change. Collective.

        Every rank is at the same step here, so the present state is saved before: it is what a newcomer gets.
        """
        self._interrupt_if_hosts_changed(is_saved=False)

    def save(self) -> None:
        """Keep the present values, in memory, for `restore`."""
        raise NotImplementedError

    def restore(self) -> None:
        """Go back to the values last saved."""
        raise NotImplementedError

    def sync(self) -> None:
        """Take over the state of the rank `sync_root`. Collective."""
        raise NotImplementedError

    def reset(self) -> None:
        """Adapt what depends on rank and size, such as a data partition."""

    def progress(self) -> Progress:
        """How far this state is, to find the rank that is furthest."""
        return self._progress

    def on_settled(self, progress: Progress) -> None:
        """Note that all ranks of the world have the same state now, which is so far."""
        self._progress = Progress(progress.commits, was_in_a_world=True)

    # ---- in a file

    def save_to(self, path: str | os.PathLike[str], every: int = 1) -> None:
        """Have rank 0 also write every n-th commit to a file, in the background; the same path on all ranks.

        A commit is left out while the one before is still being written; the last is always written.
        """
        if every < 1:
            raise ValueError(f"every must be 1 or more, not {every}")
        self.durable_values()  # says at once when it cannot be done
        self._durable = durable.DurableCommits(Path(path), every)

    def resume_from(self, path: str | os.PathLike[str]) -> bool:
        """Go on from a file that `save_to` has written; False if there is none. Before the training function is called.

        Ranks that have no file, or an older one, take over the state of one that has.
        """
        try:
            commits, values = durable.read(Path(path))
        except FileNotFoundError:
            return False
        self.load_durable_values(values)
        self._progress = Progress(commits)
        return True

    def finish_saving(self) -> None:
        """Wait until the last commit is in the file, if commits are written at all."""
        if self._durable is None:
            return
        self._durable.finish()
        if self._durable.written not in (-1, self._progress.commits):
            self._durable.start(self._progress.commits, self.durable_values())
            self._durable.finish()

    def durable_values(self) -> Any:
        """The values last saved, as something that can be pickled and does not change any more."""
        raise NotImplementedError(f"{type(self).__name__} cannot be saved to a file: it has no durable_values")

    def load_durable_values(self, values: Any) -> None:
        """Take over what `durable_values` gave, as the present values and as those last saved."""
        raise NotImplementedError

    # ----

    def _save_as_next(self) -> None:
        self.save()
        self._progress = Progress(self._progress.commits + 1, self._progress.was_in_a_world)
        if self._durable is not None and self._durable.is_due(self._progress.commits) and self._rank() == 0:
            self._durable.start(self._progress.commits, self.durable_values())

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


class ObjectState(State):
    """State of plain objects: every keyword argument is an attribute. Values are saved by reference, not copied."""

    def __init__(self, bcast_object: Callable[[Any], Any], get_rank: Callable[[], int], **kwargs: Any) -> None:
        super().__init__(bcast_object, get_rank)
        self._saved_state = kwargs
        self._assign_saved()

    def save(self) -> None:
        """Keep the attributes' present values."""
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
        """Set the attributes that this state has; others in the file are no part of it any more."""
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
