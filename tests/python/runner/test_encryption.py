"""With HOROVOD_TLS=1, what horovod.run moves cannot be read on its way, and only who has its certificate joins."""

from __future__ import annotations

import pickle
import secrets
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Any

import pytest
from callers import both, tcp_pair

import horovod
from horovod.runner.function import channel
from horovod.runner.function.channel import Channel, Refused
from horovod.runner.function.encryption import Encryption, make_identity
from horovod.runner.function.server import FunctionServer
from horovod.runner.function.task import pack, unpack

KEY = secrets.token_bytes(32)
LARGE = 5 << 20  # more than sockets hold


@pytest.fixture(scope="module")
def encryption() -> Encryption:
    return Encryption(make_identity())


@pytest.fixture
def sockets() -> Iterator[tuple[socket.socket, socket.socket]]:
    one, other = tcp_pair()
    with one, other:
        yield one, other


def greet(
    sockets: tuple[socket.socket, socket.socket], ours: Encryption | None, theirs: Encryption | None
) -> tuple[Any, Any]:
    """What comes of it for the worker and for the caller."""
    return both(
        lambda: channel.call(sockets[0], KEY, 20, ours),
        lambda: channel.answer(sockets[1], KEY, 20, theirs),
        closing=sockets,
    )


def test_messages_arrive_as_they_were_sent(
    sockets: tuple[socket.socket, socket.socket], encryption: Encryption
) -> None:
    worker, caller = greet(sockets, encryption, encryption)
    parts = [b"", b"x", secrets.token_bytes(LARGE)]
    for sender, receiver in ((worker, caller), (caller, worker)):
        for header in ({"kind": "a"}, {"kind": "b", "ä": [1]}):
            _, message = both(lambda s=sender, h=header: s.send(h, parts), receiver.receive)
            assert message.header == header
            assert message.parts == parts


def test_both_directions_at_once(sockets: tuple[socket.socket, socket.socket], encryption: Encryption) -> None:
    """Each side sends in one thread while another waits to receive, as a worker does."""
    worker, caller = greet(sockets, encryption, encryption)
    sent = {worker: secrets.token_bytes(LARGE), caller: secrets.token_bytes(LARGE)}
    received: dict[Channel, list[bytes]] = {worker: [], caller: []}

    def take(side: Channel) -> None:
        received[side] += [bytes(side.receive().parts[0]) for _ in range(5)]

    def give(side: Channel) -> None:
        for _ in range(5):
            side.send({"kind": "x"}, [sent[side]])

    threads = [threading.Thread(target=work, args=(side,)) for side in (worker, caller) for work in (take, give)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert received == {worker: [sent[caller]] * 5, caller: [sent[worker]] * 5}


def test_the_certificate_of_another_run(sockets: tuple[socket.socket, socket.socket], encryption: Encryption) -> None:
    for outcome in greet(sockets, Encryption(make_identity()), encryption):
        assert isinstance(outcome, OSError)


@pytest.mark.parametrize("who", ["worker", "caller"])
def test_one_side_without_encryption(
    sockets: tuple[socket.socket, socket.socket], encryption: Encryption, who: str
) -> None:
    ours, theirs = (None, encryption) if who == "worker" else (encryption, None)
    for outcome in greet(sockets, ours, theirs):
        assert isinstance(outcome, OSError)


def test_what_is_changed_on_the_way_is_refused(encryption: Encryption) -> None:
    (worker_end, near), (far, caller_end) = tcp_pair(), tcp_pair()
    with worker_end, near, far, caller_end:
        tamper = threading.Event()

        def relay(source: socket.socket, target: socket.socket) -> None:
            while data := bytearray(source.recv(1 << 16)):
                if tamper.is_set():
                    data[-1] ^= 1
                target.sendall(data)

        relays = [threading.Thread(target=relay, args=way) for way in ((near, far), (far, near))]
        for thread in relays:
            thread.start()
        worker, caller = both(
            lambda: channel.call(worker_end, KEY, 20, encryption),
            lambda: channel.answer(caller_end, KEY, 20, encryption),
        )
        worker.send({"kind": "first"})
        assert caller.receive().header == {"kind": "first"}
        tamper.set()
        worker.send({"kind": "second"})
        with pytest.raises(Refused, match="changed on the way"):
            caller.receive()
        for end in (worker_end, caller_end):
            end.shutdown(socket.SHUT_WR)
        for thread in relays:
            thread.join()


class Recorder:
    """A socket that keeps what goes through it."""

    conversation = bytearray()

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock

    def __getattr__(self, name: str) -> Any:
        return getattr(self._socket, name)

    def sendall(self, data: bytes) -> None:
        self.conversation += data
        self._socket.sendall(data)

    def recv(self, count: int) -> bytes:
        data = self._socket.recv(count)
        self.conversation += data
        return data

    def recv_into(self, view: memoryview) -> int:
        count = self._socket.recv_into(view)
        self.conversation += view[:count]
        return count


@pytest.mark.parametrize("tls", ["0", "1"])
def test_a_recorded_run_tells_nothing(monkeypatch: pytest.MonkeyPatch, tls: str) -> None:
    """Function, arguments, results and errors of a real job; without TLS all of them are there to be read."""
    answer = channel.answer
    monkeypatch.setattr(
        channel,
        "answer",
        lambda sock, *rest, **named: answer(Recorder(sock), *rest, **named),  # type: ignore[arg-type]
    )
    monkeypatch.setattr(Recorder, "conversation", bytearray())
    monkeypatch.setenv("HOROVOD_TLS", tls)

    def body(argument: str) -> str:
        if argument == "marker of a failure":
            raise ValueError(argument)
        return "marker of the result: " + argument

    assert horovod.run(body, ("marker of an argument",)) == ["marker of the result: marker of an argument"]
    with pytest.raises(RuntimeError, match="marker of a failure"):
        horovod.run(body, ("marker of a failure",))
    assert len(Recorder.conversation) > 1000
    markers = (b"marker of an argument", b"marker of the result", b"marker of a failure", b"Traceback", b"kind")
    assert [marker in Recorder.conversation for marker in markers] == [tls == "0"] * len(markers)


def test_strangers_get_nothing(encryption: Encryption, tmp_path: Any) -> None:
    """Plain bytes, a plain worker with the key, TLS of another run; then a worker."""
    server = FunctionServer(["127.0.0.1"], KEY, pack(int), encryption)

    def connect() -> socket.socket:
        return socket.create_connection(("127.0.0.1", server.port))

    try:
        for data in (b"", b"GET / HTTP/1.1\r\n\r\n", pickle.dumps(print), secrets.token_bytes(1 << 16)):
            with connect() as stranger, suppress(OSError):  # it may be sent away before it has said all
                stranger.sendall(data)
        for other in (None, Encryption(make_identity())):
            with connect() as stranger, pytest.raises(OSError):
                channel.call(stranger, KEY, 20, other)
        with closing(channel.call(connect(), KEY, 20, encryption)) as worker:
            worker.send({"kind": "hello", "rank": 0, "host": "h", "pid": 1})
            assert unpack(worker.receive().parts) is int
            worker.send({"kind": "result"}, pack(7))
            assert worker.receive().header == {"kind": "thanks"}
        (event,) = server.events()
        assert unpack(event.parts) == 7
    finally:
        server.close()
