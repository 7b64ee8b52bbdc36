"""Messages between the process that called horovod.run and one of its workers.

They are sent over a connection of the library, which has proven to each side that the other has the key of the run, and
encrypts (`horovod._native.connections`). A message is a *header* (its length in 4 bytes, then JSON) and its *parts*
(bytes, whose lengths are in the header).

Thread rule: one thread may send while another receives; close() from any.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from horovod._native import connections

LARGEST_HEADER = 1 << 20
MOST_PARTS = 20_000
PATIENCE_SECONDS = 20.0  # for the first message after the connection was made
_LENGTH = struct.Struct("!I")


class Refused(ConnectionError):
    """The other side does not follow the protocol."""


@dataclass
class Message:
    """A header of plain data, and parts that are not interpreted here."""

    header: dict[str, Any]
    parts: list[bytearray]


class Channel:
    """Sends and receives messages over a connection."""

    def __init__(self, connection: connections.Connection) -> None:
        self._connection = connection
        self._timeout: float | None = None
        self.close = connection.close
        self.forget = connection.forget
        self.local_address = connection.local_address

    def send(self, header: dict[str, Any], parts: Iterable[bytes | bytearray | memoryview] = ()) -> None:
        """Send a message; ConnectionError when the other side is gone."""
        views = [memoryview(part).cast("B") for part in parts]
        text = json.dumps(header | {"parts": [view.nbytes for view in views]}).encode()
        for data in (memoryview(_LENGTH.pack(len(text)) + text), *views):
            self._connection.send(data)

    def receive(self) -> Message:
        """Wait for a message; ConnectionError when the other side is gone or breaks the rules."""
        (length,) = _LENGTH.unpack(self._receive_part(_LENGTH.size))
        if length > LARGEST_HEADER:
            raise Refused(f"a header of {length} bytes is too long")
        header, lengths = _parse_header(self._receive_part(length))
        return Message(header, [self._receive_part(length) for length in lengths])

    def settimeout(self, seconds: float | None) -> None:
        """Limit the silence of the other side while a message is awaited; None: no limit."""
        self._timeout = seconds

    def _receive_part(self, length: int) -> bytearray:
        part = bytearray(length)
        self._connection.receive_into(memoryview(part), self._timeout)
        return part


def connect(name: str, addresses: Sequence[tuple[str, int]], key: bytes, seconds: float) -> Channel:
    """Connect to a `listener.Listener`, called `name` in messages; ConnectionError if no address works."""
    return Channel(connections.connect(name, addresses, key, seconds))


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
