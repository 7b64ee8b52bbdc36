"""Elastic training, as far as it does not depend on the framework: state that survives a change of the world."""

from __future__ import annotations

import functools
import queue
import threading
from collections.abc import Callable
from enum import IntFlag
from typing import Any, TypeVar

from horovod.common.exceptions import HorovodInternalError, HostsUpdatedInterrupt

R = TypeVar("R")


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

    def __init__(self, bcast_object: Callable[[Any], Any], get_rank: Callable[[], int]) -> None:
        self._bcast_object = bcast_object
        self._rank = get_rank
        self._host_messages: queue.Queue[tuple[float, int]] = queue.Queue()
        self._last_updated_timestamp: float = 0
        self._reset_callbacks: list[Callable[[], None]] = []

    def register_reset_callbacks(self, callbacks: list[Callable[[], None]]) -> None:
        """Add functions to call after every change of the world, in order."""
        self._reset_callbacks.extend(callbacks)

    def on_reset(self) -> None:
        """Adapt to a new world: after it was formed, before `sync`."""
        self._host_messages = queue.Queue()
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def on_hosts_updated(self, timestamp: float, update_res: int) -> None:
        """Note that hosts changed. Called from the thread that listens to the driver."""
        self._host_messages.put((timestamp, update_res))

    def commit(self) -> None:
        """Save the state, then see whether the world has to change. Costs a copy of the state and a broadcast."""
        self.save()
        self.check_host_updates()

    def check_host_updates(self) -> None:
        """Raise HostsUpdatedInterrupt on all ranks if rank 0 was told of a change. Collective."""
        newest, update = self._last_updated_timestamp, HostUpdateResult.no_update
        while not self._host_messages.empty():
            timestamp, result = self._host_messages.get()
            if timestamp > newest:
                newest = timestamp
                update |= HostUpdateResult(result)
        previous, self._last_updated_timestamp, update = self._bcast_object(
            (self._last_updated_timestamp, newest, update)
        )
        if self._last_updated_timestamp > previous:
            raise HostsUpdatedInterrupt(update == HostUpdateResult.removed)

    def save(self) -> None:
        """Keep the present values, in memory, for `restore`."""
        raise NotImplementedError

    def restore(self) -> None:
        """Go back to the values last saved."""
        raise NotImplementedError

    def sync(self) -> None:
        """Take over the state of rank 0. Collective."""
        raise NotImplementedError

    def reset(self) -> None:
        """Adapt what depends on rank and size, such as a data partition."""


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
        """Set the attributes to the values last saved on rank 0."""
        if self._saved_state:
            self._saved_state = self._bcast_object(self._saved_state)
            self._assign_saved()

    def _assign_saved(self) -> None:
        for name, value in self._saved_state.items():
            setattr(self, name, value)


class HostUpdates:
    """Passes the driver's messages on to the states in use. Thread rule: any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: list[State] = []  # guarded by _lock

    def register_listener(self, listener: State) -> None:
        """Have `listener.on_hosts_updated` called from now on."""
        with self._lock:
            self._listeners.append(listener)

    def remove_listener(self, listener: State) -> None:
        """Undo `register_listener`."""
        with self._lock:
            self._listeners.remove(listener)

    def handle_hosts_updated(self, timestamp: float, update_res: int) -> None:
        """Tell all listeners that hosts changed."""
        with self._lock:
            listeners = list(self._listeners)
        for listener in listeners:
            listener.on_hosts_updated(timestamp, update_res)


notification_manager = HostUpdates()


def run_fn(func: Callable[..., R], reset: Callable[[], None]) -> Callable[..., R]:
    """Return `func(state, ...)` made elastic: when a collective fails or hosts change, it is called again.

    A failure goes back to the last commit; a change of hosts keeps the present state. `reset` forms the new world.
    """

    @functools.wraps(func)
    def wrapper(state: State, *args: Any, **kwargs: Any) -> R:
        notification_manager.register_listener(state)
        skip_sync = False
        try:
            while True:
                try:
                    if not skip_sync:
                        state.sync()
                    return func(state, *args, **kwargs)
                except HorovodInternalError:
                    state.restore()
                    skip_sync = False
                except HostsUpdatedInterrupt as interrupt:
                    skip_sync = interrupt.skip_sync
                reset()
                state.on_reset()
        finally:
            notification_manager.remove_listener(state)

    return wrapper
