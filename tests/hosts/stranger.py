"""A process on the network that does not belong to the job. Run in a host:

    python stranger.py KEY [address]:port...     # prints, as JSON, what the first port answers; ends with its input

Each port gets garbage of several kinds, connections that say nothing or half of a hello, and another key. The first is
the store's: it is also asked with the right key, then with the very same words. src/net/handshake.h has the protocol.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import socket
import struct
import sys

HELLO, PROOF = 1, 3
STORE, DATA = 0, 2
VERSION = 1
ANSWER_SECONDS = 60.0  # a rejected process gets the end of the connection at once

GARBAGE = {
    "http": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "pickle": b"\x80\x04\x95" + bytes(200),
    "tls": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200),
    "much": bytes(range(256)) * 4096,
    "long": b"hvd\xa7\x01\x01\xff\xff" + bytes(70000),
    "wrong kind": b"hvd\xa7\x01\x07\x00\x00",
}


def message(kind: int, body: bytes, version: int = VERSION) -> bytes:
    return b"hvd\xa7" + struct.pack("<BBH", version, kind, len(body)) + body


def hello(purpose: int, caller: int, called: int, version: int = VERSION, generation: int = 0) -> bytes:
    return message(HELLO, os.urandom(32) + struct.pack("<BQiii", purpose, generation, caller, called, 0), version)


def proof(key: bytes, label: bytes, said: bytes) -> bytes:
    return hmac.digest(key, bytes([len(label)]) + label + said, hashlib.sha256)


def connect(address: str, port: int) -> socket.socket:
    return socket.create_connection((address, port), ANSWER_SECONDS)


def read(connection: socket.socket, count: int) -> bytes:
    """Fewer at the end, or when nothing comes for long."""
    data = b""
    while len(data) < count:
        try:
            more = connection.recv(count - len(data))
        except (ConnectionError, TimeoutError):
            return data
        if not more:
            break
        data += more
    return data


def answer_to(connection: socket.socket) -> bytes:
    """One message, whole; b"" when there is none."""
    header = read(connection, 8)
    return header + read(connection, struct.unpack("<H", header[6:])[0]) if len(header) == 8 else b""


def say(connection: socket.socket, data: bytes) -> None:
    with contextlib.suppress(ConnectionError, TimeoutError):  # the other side has heard enough
        connection.sendall(data)


def shake_hands(address: str, port: int, key: bytes, purpose: int, called: int) -> tuple[list[bytes], bytes]:
    """What the caller said, and what it was answered last."""
    with connect(address, port) as connection:
        said = [hello(purpose, -1, called)]
        connection.sendall(said[0])
        challenge = answer_to(connection)
        said.append(message(PROOF, proof(key, b"caller", said[0] + challenge)))
        say(connection, said[1])
        return said, answer_to(connection)


def replay(address: str, port: int, said: list[bytes]) -> bytes:
    """The last answer to the same words on a new connection."""
    with connect(address, port) as connection:
        connection.sendall(said[0])
        answer_to(connection)
        say(connection, said[1])
        return answer_to(connection)


def bother(address: str, port: int, key: bytes) -> list[socket.socket]:
    """Connections that the other side may end, now or when it comes to look at them."""
    first = hello(DATA, 1, 0)
    openings = [*GARBAGE.values(), b"", first[:20], first + message(PROOF, proof(key, b"caller", first))]
    connections = [connect(address, port) for _ in openings]
    for connection, opening in zip(connections, openings, strict=True):
        connection.settimeout(0.2)  # a process that does not read is not waited for
        say(connection, opening)
    return connections


def main() -> None:
    key = bytes.fromhex(sys.argv[1])
    wrong = bytes(byte ^ 1 for byte in key)
    places = [(address.strip("[]"), int(port)) for address, _, port in (each.rpartition(":") for each in sys.argv[2:])]
    kept = [connection for place in places for connection in bother(*place, wrong)]
    store = places[0]
    said, verdict = shake_hands(*store, key, STORE, -1)
    with connect(*store) as old:
        say(old, hello(STORE, -1, -1, version=9))
        answers = {
            "right key": verdict,
            "replay": replay(*store, said),
            "wrong key": shake_hands(*store, wrong, STORE, -1)[1],
            "other version": answer_to(old),
        }
    print(json.dumps({"connections": len(kept)} | {name: answer.hex() for name, answer in answers.items()}), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
