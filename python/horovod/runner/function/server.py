"""The caller's side of horovod.run: gives the function to every worker and takes what comes back.

One thread per listening socket, and one per connection; strangers are few, because the oldest is sent away when there
are too many. close() ends all of them.
Thread rule: start and close from one thread; events() and workers from any.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from horovod.runner.function import channel
from horovod.runner.function.task import Parts, Report, Worker, describe, own_paths

MOST_STRANGERS = 256  # connections that have not proven the key yet
LOG_SECONDS = 10.0  # strangers are mentioned at most this often
_logger = logging.getLogger("horovod.runner")


@dataclass(frozen=True)
class Event:
    """The end of a worker's part, in the order in which the caller learned of it."""

    worker: Worker
    kind: str  # "result", "error" or "lost": the connection ended without either
    parts: list[bytearray] = field(default_factory=list)  # the pickled result or exception
    report: Report | None = None  # of an error
    reason: str = ""  # why the connection of a lost worker ended, if not by its own end


class FunctionServer:
    """Listens from construction on, on the given addresses of this machine, all with the same port."""

    def __init__(self, addresses: Sequence[str], key: bytes, function: Parts) -> None:
        self._key = key
        self._function = function
        self._paths = own_paths()
        self._lock = threading.Lock()
        self._events: list[Event] = []  # the rest is guarded by _lock
        self._strangers: list[socket.socket] = []
        self._open: set[socket.socket] = set()
        self._threads: set[threading.Thread] = set()
        self._closing = threading.Event()
        self._logged = float("-inf")
        self._listeners = _listen(addresses)
        self.port: int = self._listeners[0].getsockname()[1]
        for listener in self._listeners:
            self._start(self._accept, listener)

    def events(self) -> list[Event]:
        """What came back so far."""
        with self._lock:
            return list(self._events)

    def close(self) -> None:
        """End every connection and thread."""
        self._closing.set()
        with self._lock:
            sockets = [*self._listeners, *self._open]
        for each in sockets:
            _shut_down(each)
        while True:
            with self._lock:
                threads = list(self._threads)
            if not threads:
                break
            for thread in threads:
                thread.join()
        for listener in self._listeners:
            listener.close()

    def _start(self, target: Any, sock: socket.socket) -> None:
        def body() -> None:
            try:
                target(sock)
            finally:
                with self._lock:
                    self._threads.discard(thread)

        thread = threading.Thread(target=body, name="horovod.run", daemon=True)
        with self._lock:  # so that close() finds only threads that run
            thread.start()
            self._threads.add(thread)

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
                self._start(self._serve, connection)
            except RuntimeError as error:  # the system has no thread for it
                self._forget(connection)
                _logger.warning("horovod.run: cannot serve a connection: %s", error)

    def _serve(self, connection: socket.socket) -> None:
        worker: Worker | None = None
        proven, lost = False, ""
        try:
            link = channel.answer(connection, self._key)
            proven = True
            with self._lock:
                if connection in self._strangers:
                    self._strangers.remove(connection)
            link.settimeout(channel.HANDSHAKE_SECONDS)
            worker = _introduction(link.receive())
            link.settimeout(None)  # the function takes as long as it takes
            link.send({"kind": "task", "paths": self._paths}, self._function)
            self._take(_ending(worker, link.receive()))
            worker = None
            link.send({"kind": "thanks"})
        except OSError as error:
            lost = "" if isinstance(error, ConnectionResetError | BrokenPipeError) else str(error)
            if not proven:
                self._mention(connection, error)
        except Exception as error:  # such as too little memory for the result
            lost = describe(error)
        finally:
            self._forget(connection)
            if worker is not None:
                self._take(Event(worker, "lost", reason=lost))

    def _forget(self, connection: socket.socket) -> None:
        with self._lock:
            self._open.discard(connection)
            if connection in self._strangers:
                self._strangers.remove(connection)
        connection.close()

    def _take(self, event: Event) -> None:
        with self._lock:
            self._events.append(event)

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
        _logger.warning("horovod.run: refused a connection from %s: %s", where, error)


def _introduction(message: channel.Message) -> Worker:
    header = message.header
    try:
        return Worker(int(header["rank"]), str(header["host"]), int(header["pid"]))
    except (KeyError, TypeError, ValueError):
        raise channel.Refused("it does not say who it is") from None


def _ending(worker: Worker, message: channel.Message) -> Event:
    header = message.header
    worker = Worker(int(header.get("rank", worker.rank)), worker.host, worker.pid)  # elastic ranks change
    if header.get("kind") == "result":
        return Event(worker, "result", message.parts)
    (summary, trace), exception = (bytes(part).decode() for part in message.parts[:2]), message.parts[2:]
    return Event(worker, "error", exception, Report(summary, trace, bool(header.get("consequence"))))


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
