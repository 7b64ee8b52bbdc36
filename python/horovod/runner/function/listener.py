"""Who listens for the processes of one job: greets whoever connects, and serves those who have the key.

One thread per listening socket, and one per connection; strangers are few, because the oldest is sent away when there
are too many. close() ends all of them.
Thread rule: start and close from one thread; serve() is called by many.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Sequence
from typing import Any

from horovod.runner.function import channel
from horovod.runner.function.encryption import Encryption

MOST_STRANGERS = 256  # connections that have not proven the key yet
LOG_SECONDS = 10.0  # strangers are mentioned at most this often
_logger = logging.getLogger("horovod.runner")


class Listener:
    """Listens from construction on, on the given addresses of this machine, all with the same port."""

    def __init__(
        self, addresses: Sequence[str], key: bytes, encryption: Encryption | None = None, called: str = "horovod.run"
    ) -> None:
        """`called`: what threads and log lines are named after."""
        self._key = key
        self._encryption = encryption
        self._called = called
        self._lock = threading.Lock()
        self._strangers: list[socket.socket] = []  # the rest is guarded by _lock
        self._open: set[socket.socket] = set()
        self._threads: set[threading.Thread] = set()
        self._closing = threading.Event()
        self._logged = float("-inf")
        self._listeners = _listen(addresses)
        self.port: int = self._listeners[0].getsockname()[1]
        for listener in self._listeners:
            self._start(self._accept, listener)

    def serve(self, link: channel.Channel) -> None:
        """Talk with somebody who has the key. OSError ends it, and close() makes one."""
        raise AssertionError("a subclass knows what to say")

    def close(self) -> None:
        """End every connection and thread."""
        self._closing.set()
        with self._lock:
            sockets = [*self._listeners, *self._open]
        for each in sockets:
            _shut_down(each)
        while True:
            with self._lock:
                threads, self._threads = self._threads, set()
            if not threads:
                break
            for thread in threads:
                thread.join()
        for listener in self._listeners:
            listener.close()

    def _start(self, target: Any, sock: socket.socket) -> None:
        thread = threading.Thread(target=target, args=(sock,), name=self._called, daemon=True)
        with self._lock:  # so that close() finds only threads that have been started
            thread.start()
            self._threads = {each for each in self._threads if each.is_alive()} | {thread}

    def _accept(self, listener: socket.socket) -> None:
        while not self._closing.is_set():
            try:
                connection, _ = listener.accept()
            except OSError:  # close() ends the wait; out of descriptors: let some be given back
                self._closing.wait(0.1)
                continue
            with self._lock:
                if self._closing.is_set():
                    connection.close()
                    return
                self._open.add(connection)
                self._strangers.append(connection)
                oldest = self._strangers.pop(0) if len(self._strangers) > MOST_STRANGERS else None
            if oldest is not None:
                _shut_down(oldest)
            try:
                self._start(self._greet, connection)
            except RuntimeError as error:  # the system has no thread for it
                self._forget(connection)
                _logger.warning("%s: cannot serve a connection: %s", self._called, error)

    def _greet(self, connection: socket.socket) -> None:
        try:
            link = self._proven(connection)
            if link is not None:
                with contextlib.suppress(OSError):  # the other side is gone
                    self.serve(link)
        finally:
            self._forget(connection)

    def _proven(self, connection: socket.socket) -> channel.Channel | None:
        try:
            link = channel.answer(connection, self._key, encryption=self._encryption)
        except OSError as error:
            self._mention(connection, error)
            return None
        with self._lock:
            if connection in self._strangers:
                self._strangers.remove(connection)
        return link

    def _forget(self, connection: socket.socket) -> None:
        with self._lock:
            self._open.discard(connection)
            if connection in self._strangers:
                self._strangers.remove(connection)
        connection.close()

    def _mention(self, connection: socket.socket, error: OSError) -> None:
        now = time.monotonic()
        with self._lock:
            if self._closing.is_set() or now - self._logged < LOG_SECONDS:
                return
            self._logged = now
        try:
            where = connection.getpeername()[0]
        except OSError:
            where = "somebody who is gone"
        _logger.warning("%s: refused a connection from %s: %s", self._called, where, error)


def _listen(addresses: Sequence[str]) -> list[socket.socket]:
    """One socket per address; the first one's port has to be free on the others too, so try a few."""
    for attempt in range(20):
        sockets: list[socket.socket] = []
        try:
            for address in addresses:
                sockets.append(_bound(address, sockets[0].getsockname()[1] if sockets else 0))
        except OSError:
            for each in sockets:
                each.close()
            if attempt == 19 or not sockets:
                raise
            continue
        for each in sockets:
            each.listen(1024)
        return sockets
    raise AssertionError("unreachable")


def _bound(address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(address != "::"))
        sock.bind((address, port))
    except OSError as error:
        sock.close()
        raise OSError(error.errno, f"cannot listen on {address}: {error.strerror}") from None
    return sock


def _shut_down(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it ended by itself
        sock.shutdown(socket.SHUT_RDWR)
