"""Connections between processes that share a key: authenticated and encrypted by the library (src/net/blocking.h).

Thread rule: one thread may send while another receives; close() from any.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import byref, c_char_p, c_int32, c_int64
from typing import NoReturn

from horovod._native.abi import Code, ConnectionPointer, ListenerPointer
from horovod._native.library import last_error, library

_STEP = 1 << 20  # bytes that are sent at once


class Connection:
    """A stream of bytes to the other process. It ends when either process closes it or ends."""

    def __init__(self, pointer: ConnectionPointer) -> None:
        self._pointer: ConnectionPointer | None = pointer

    def send(self, data: memoryview) -> None:
        """Send all bytes; ConnectionError when the other process is gone."""
        sent = c_int64()
        for begin in range(0, data.nbytes, _STEP):
            step = bytes(data[begin : begin + _STEP])
            while step:
                _check(library().hvd_connection_send(self._owned(), step, len(step), byref(sent)))
                step = step[sent.value :]

    def receive_into(self, view: memoryview, timeout: float | None = None) -> None:
        """Fill `view`; ConnectionError when the other process is gone, TimeoutError after `timeout` s of silence."""
        received = c_int64()
        seconds = -1.0 if timeout is None else timeout
        done = 0
        while done < view.nbytes:
            place = (ctypes.c_char * (view.nbytes - done)).from_buffer(view, done)
            _check(library().hvd_connection_receive(self._owned(), place, view.nbytes - done, seconds, byref(received)))
            done += received.value

    def local_address(self) -> str:
        """The address of this machine that the connection uses."""
        text: bytes = library().hvd_connection_local_address(self._owned())
        return text.decode()

    def close(self) -> None:
        """End the connection, and calls of other threads that wait on it."""
        if self._pointer is not None:
            library().hvd_connection_close(self._pointer)

    def forget(self) -> None:
        """Close this process's copy after a fork: the connection belongs to the parent."""
        pointer, self._pointer = self._pointer, None
        if pointer is not None:
            library().hvd_connection_destroy(pointer)

    def _owned(self) -> ConnectionPointer:
        if self._pointer is None:
            raise ConnectionError("the connection belongs to the parent process")
        return self._pointer

    def __del__(self) -> None:
        self.forget()


class Acceptor:
    """Listens after construction: on the given addresses of this machine, or on all. `port` is the same on each."""

    def __init__(self, addresses: Sequence[str], key: bytes) -> None:
        self._pointer: ListenerPointer | None = None
        pointer, port = ListenerPointer(), c_int32()
        texts = (c_char_p * len(addresses))(*(address.encode() for address in addresses))
        _check(library().hvd_listen(texts, len(addresses), key.hex().encode(), byref(pointer), byref(port)))
        self._pointer = pointer
        self.port: int = port.value

    def accept(self) -> Connection:
        """Wait for the next process that has proven the key; OSError after close()."""
        pointer = ConnectionPointer()
        _check(library().hvd_accept(self._pointer, byref(pointer)))
        return Connection(pointer)

    def close(self) -> None:
        """Make accept() fail."""
        if self._pointer is not None:
            library().hvd_listener_close(self._pointer)

    def release(self) -> None:
        """Stop listening. No other thread may be in accept()."""
        pointer, self._pointer = self._pointer, None
        if pointer is not None:
            library().hvd_listener_destroy(pointer)

    def __del__(self) -> None:
        self.release()


def connect(name: str, addresses: Sequence[tuple[str, int]], key: bytes, seconds: float) -> Connection:
    """Connect to an Acceptor with this key, at the first address that answers; ConnectionError lists all addresses.

    `name`: the other process in messages. Addresses that refuse are not retried; others are, for `seconds`.
    """
    pointer = ConnectionPointer()
    hosts = (c_char_p * len(addresses))(*(host.encode() for host, _ in addresses))
    ports = (c_int32 * len(addresses))(*(port for _, port in addresses))
    code = library().hvd_connect(
        name.encode(), hosts, ports, len(addresses), key.hex().encode(), seconds, byref(pointer)
    )
    if code not in (Code.OK, Code.INVALID_ARGUMENT):
        raise ConnectionError(last_error())
    _check(code)
    return Connection(pointer)


def _check(code: int) -> None:
    if code != Code.OK:
        _fail(code, last_error())


def _fail(code: int, text: str) -> NoReturn:
    if code == Code.INVALID_ARGUMENT:
        raise ValueError(text)
    if code == Code.TIMED_OUT:
        raise TimeoutError(text)
    if code == Code.PEER_LOST:
        raise (ConnectionAbortedError if text.startswith("TLS: ") else ConnectionResetError)(text)
    raise OSError(text)
