"""A connection between the process that called horovod.run and one of its workers; nobody else gets one.

The handshake proves to each side that the other has the key of the run:

    worker: MAGIC, nonce                  nothing is answered before all of it was read
    caller: nonce, proof of the caller    HMAC-SHA256 under the key, over who proves and both nonces
    worker: proof of the worker

Then messages: a *header* (JSON) and its *parts* (bytes), cut into *frames* of limited size. A frame is its length, its
bytes and a tag: HMAC-SHA256 under a key that belongs to this connection and direction, over the frame's number, length
and bytes. So whoever can change packets on the way can end the connection, but can neither insert nor repeat a frame.
The bytes are encrypted when the run has an `Encryption`: then TLS comes first, and all of this is said inside.

Thread rule: one thread may send while another receives; close() from any.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import secrets
import socket
import ssl
import struct
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from horovod.runner.function.encryption import EncryptedSocket, Encryption

MAGIC = b"HVDRUN1\n"
NONCE_BYTES = 32
TAG_BYTES = 32
LARGEST_FRAME = 1 << 20
MOST_PARTS = 20_000
HANDSHAKE_SECONDS = 20.0
_LENGTH = struct.Struct("!I")
_NUMBER = struct.Struct("!QI")


AnySocket = socket.socket | EncryptedSocket


class Refused(ConnectionError):
    """The other side is not part of this run, or does not speak its language."""


@dataclass
class Message:
    """What one side tells the other. `header` is plain data; `parts` are only interpreted by who expects them."""

    header: dict[str, Any]
    parts: list[bytearray]


class Channel:
    """The connection after the handshake."""

    def __init__(self, sock: AnySocket, send_key: bytes, receive_key: bytes) -> None:
        self._socket = sock
        self._send_tag = hmac.new(send_key, digestmod="sha256")
        self._receive_tag = hmac.new(receive_key, digestmod="sha256")
        self._sent = self._received = 0

    def send(self, header: dict[str, Any], parts: Iterable[bytes | bytearray | memoryview] = ()) -> None:
        """Send a message; ConnectionError when the other side is gone."""
        views = [memoryview(part).cast("B") for part in parts]
        text = json.dumps(header | {"parts": [view.nbytes for view in views]}).encode()
        self._send_frame(memoryview(text))
        for view in views:
            for begin in range(0, view.nbytes, LARGEST_FRAME):
                self._send_frame(view[begin : begin + LARGEST_FRAME])

    def receive(self) -> Message:
        """Wait for a message; ConnectionError when the other side is gone or breaks the rules."""
        length = self._receive_length()
        text = bytearray(length)
        self._receive_rest(memoryview(text))
        header, lengths = _parse_header(text)
        return Message(header, [self._receive_part(length) for length in lengths])

    def settimeout(self, seconds: float | None) -> None:
        """Limit every single wait for the other side; None: wait for as long as it lives."""
        self._socket.settimeout(seconds)

    def close(self) -> None:
        """End the connection, and with it what other threads wait for on it."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def forget(self) -> None:
        """Close this process's copy after a fork: the connection belongs to the parent."""
        self._socket.close()

    def _send_frame(self, data: memoryview) -> None:
        tag = self._send_tag.copy()
        tag.update(_NUMBER.pack(self._sent, data.nbytes))
        tag.update(data)
        self._sent += 1
        if data.nbytes < 1 << 12:
            self._socket.sendall(_LENGTH.pack(data.nbytes) + bytes(data) + tag.digest())
            return
        self._socket.sendall(_LENGTH.pack(data.nbytes))
        self._socket.sendall(data)
        self._socket.sendall(tag.digest())

    def _receive_part(self, length: int) -> bytearray:
        part = bytearray(length)
        view = memoryview(part)
        for begin in range(0, length, LARGEST_FRAME):
            chunk = view[begin : begin + LARGEST_FRAME]
            if self._receive_length() != chunk.nbytes:
                raise Refused("a frame has another length than was announced")
            self._receive_rest(chunk)
        return part

    def _receive_length(self) -> int:
        data = bytearray(_LENGTH.size)
        _read_into(self._socket, memoryview(data))
        (length,) = _LENGTH.unpack(data)
        if length > LARGEST_FRAME:
            raise Refused(f"a frame of {length} bytes is too long")
        return int(length)

    def _receive_rest(self, into: memoryview) -> None:
        _read_into(self._socket, into)
        tag = bytearray(TAG_BYTES)
        _read_into(self._socket, memoryview(tag))
        wanted = self._receive_tag.copy()
        wanted.update(_NUMBER.pack(self._received, into.nbytes))
        wanted.update(into)
        self._received += 1
        if not hmac.compare_digest(wanted.digest(), tag):
            raise Refused("a frame was changed on the way")


def call(
    connection: socket.socket, key: bytes, seconds: float = HANDSHAKE_SECONDS, encryption: Encryption | None = None
) -> Channel:
    """Greet the process that called horovod.run; Refused if it is somebody else."""
    deadline = time.monotonic() + seconds
    mine = secrets.token_bytes(NONCE_BYTES)
    _prepare(connection)
    connection.settimeout(seconds)
    sock: AnySocket = connection
    if encryption is not None:
        with _refusing_strangers():
            sock = encryption.call(connection, deadline)
    sock.sendall(MAGIC + mine)
    answer = _read(sock, NONCE_BYTES + TAG_BYTES, deadline)
    theirs, proof = answer[:NONCE_BYTES], answer[NONCE_BYTES:]
    if not hmac.compare_digest(_derive(key, b"caller", mine, theirs), proof):
        raise Refused("it has another key: it is not the process that called horovod.run")
    sock.sendall(_derive(key, b"worker", mine, theirs))
    return Channel(sock, _derive(key, b"from worker", mine, theirs), _derive(key, b"from caller", mine, theirs))


def answer(
    connection: socket.socket, key: bytes, seconds: float = HANDSHAKE_SECONDS, encryption: Encryption | None = None
) -> Channel:
    """Greet whoever has connected; Refused if it is not a worker of the run with this key."""
    deadline = time.monotonic() + seconds
    _prepare(connection)
    sock: AnySocket = connection
    if encryption is not None:
        with _refusing_strangers():
            sock = encryption.answer(connection, deadline)
    hello = _read(sock, len(MAGIC) + NONCE_BYTES, deadline)
    if hello[: len(MAGIC)] != MAGIC:
        raise Refused("it does not speak the language of horovod.run")
    theirs, mine = hello[len(MAGIC) :], secrets.token_bytes(NONCE_BYTES)
    sock.sendall(mine + _derive(key, b"caller", theirs, mine))
    if not hmac.compare_digest(_derive(key, b"worker", theirs, mine), _read(sock, TAG_BYTES, deadline)):
        raise Refused("it has another key")
    return Channel(sock, _derive(key, b"from caller", theirs, mine), _derive(key, b"from worker", theirs, mine))


def _derive(key: bytes, purpose: bytes, worker_nonce: bytes, caller_nonce: bytes) -> bytes:
    return hmac.digest(key, MAGIC + purpose + b"\0" + worker_nonce + caller_nonce, "sha256")


@contextlib.contextmanager
def _refusing_strangers() -> Iterator[None]:
    try:
        yield
    except ssl.SSLError as error:
        raise Refused(f"it does not encrypt as this run does: {error.reason or error}") from None


def _prepare(sock: socket.socket) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # a host that disappears is noticed after some minutes
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 20)


def _parse_header(text: bytearray) -> tuple[dict[str, Any], list[int]]:
    try:
        header = json.loads(text)
    except ValueError as error:
        raise Refused(f"a header is not JSON: {error}") from None
    lengths = header.pop("parts", None) if isinstance(header, dict) else None
    if not isinstance(lengths, list) or len(lengths) > MOST_PARTS:
        raise Refused("a header does not say what follows")
    if not all(isinstance(length, int) and length >= 0 for length in lengths):
        raise Refused("a part has an impossible length")
    return header, lengths


def _read(sock: AnySocket, count: int, deadline: float) -> bytes:
    """Exactly `count` bytes before the deadline, however slowly they drip in."""
    data = bytearray(count)
    _read_into(sock, memoryview(data), deadline)
    return bytes(data)


def _read_into(sock: AnySocket, view: memoryview, deadline: float | None = None) -> None:
    while view.nbytes > 0:
        if deadline is not None:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError("it said nothing for too long")
            sock.settimeout(left)
        try:
            count = sock.recv_into(view)
        except ssl.SSLError as error:
            raise Refused(f"what came was changed on the way: {error.reason or error}") from None
        if count == 0:
            raise ConnectionResetError("it closed the connection")
        view = view[count:]
