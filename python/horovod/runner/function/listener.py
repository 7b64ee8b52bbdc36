"""Listens for the processes of one job and serves each in a thread.

The library authenticates connections (`horovod._native.connections`): only processes that have the key get here.
Thread rule: start and close from one thread; serve() is called by many.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Sequence

from horovod._native import connections
from horovod.runner.function.channel import Channel

_logger = logging.getLogger("horovod.runner")


class Listener:
    """Listens from construction on, on the given addresses of this machine, or on all; all with the same port."""

    def __init__(self, addresses: Sequence[str], key: bytes, called: str = "horovod.run") -> None:
        """`called`: the name of threads, and in log lines."""
        self._called = called
        self._lock = threading.Lock()
        self._open: set[Channel] = set()  # the rest is guarded by _lock
        self._threads: set[threading.Thread] = set()
        self._is_closing = False
        self._acceptor = connections.Acceptor(addresses, key)
        self.port = self._acceptor.port
        self._start(self._accept)

    def serve(self, link: Channel) -> None:
        """Talk with a process that has the key. OSError ends it, and close() causes one."""
        raise AssertionError("a subclass implements this")

    def close(self) -> None:
        """End every connection and thread."""
        with self._lock:
            self._is_closing = True
            links = list(self._open)
        self._acceptor.close()
        for link in links:
            link.close()
        while True:
            with self._lock:
                threads, self._threads = self._threads, set()
            if not threads:
                break
            for thread in threads:
                thread.join()
        self._acceptor.release()

    def _start(self, target: Callable[[], None]) -> None:
        thread = threading.Thread(target=target, name=self._called, daemon=True)
        with self._lock:  # so that close() finds only threads that have been started
            thread.start()
            self._threads = {each for each in self._threads if each.is_alive()} | {thread}

    def _accept(self) -> None:
        while True:
            try:
                link = Channel(self._acceptor.accept())
            except OSError:  # close() ends the wait
                return
            with self._lock:
                if self._is_closing:
                    return
                self._open.add(link)
            try:
                self._start(lambda link=link: self._serve(link))  # type: ignore[misc]
            except RuntimeError as error:  # the system has no thread for it
                self._forget(link)
                _logger.warning("%s: cannot serve a connection: %s", self._called, error)
            del link  # its thread owns it

    def _serve(self, link: Channel) -> None:
        try:
            with contextlib.suppress(OSError):  # the other side is gone
                self.serve(link)
        finally:
            self._forget(link)

    def _forget(self, link: Channel) -> None:
        with self._lock:
            self._open.discard(link)
        link.close()
