"""Delivers the launcher's notices (hosts added or removed) to the states in use."""

from __future__ import annotations

import atexit
import threading
from typing import Protocol

from horovod._native import elastic


class Listener(Protocol):
    """Receives notifications; a State."""

    def on_hosts_updated(self, timestamp: float, update_res: int) -> None: ...


class HostUpdates:
    """Forwards the launcher's messages to the listeners. Thread rule: any thread.

    One thread per process waits for messages, from `init` until the launcher or this process ends.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: list[Listener] = []  # guarded by _lock, as what follows
        self._thread: threading.Thread | None = None

    def init(self) -> None:
        """Start listening to the launcher; does nothing if already started, or without an elastic launcher."""
        with self._lock:
            if self._thread is not None or not elastic.is_worker():
                return
            self._thread = threading.Thread(target=self._listen, name="hvd-elastic", daemon=True)
            self._thread.start()
            atexit.register(self._stop, self._thread)

    def register_listener(self, listener: Listener) -> None:
        """Call `listener.on_hosts_updated` from now on."""
        with self._lock:
            self._listeners.append(listener)

    def remove_listener(self, listener: Listener) -> None:
        """Undo `register_listener`."""
        with self._lock:
            self._listeners.remove(listener)

    def handle_hosts_updated(self, timestamp: float, update_res: int) -> None:
        """Tell all listeners that hosts changed."""
        with self._lock:
            listeners = list(self._listeners)
        for listener in listeners:
            listener.on_hosts_updated(timestamp, update_res)

    def _listen(self) -> None:
        try:
            while True:
                change = elastic.next_change()
                if change is not None:
                    self.handle_hosts_updated(change.timestamp, change.update)
        except elastic.NoMoreChanges:
            pass

    @staticmethod
    def _stop(thread: threading.Thread) -> None:
        elastic.stop_waiting()
        thread.join()


notification_manager = HostUpdates()
