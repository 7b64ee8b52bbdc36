"""Processes without the key of a run learn nothing from it, change nothing in it, and have nothing unpickled."""

from __future__ import annotations

import os
import pickle
import secrets
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import psutil
import pytest
from callers import DEADLINE, Meeting, both, meet
from child import Child

import horovod
from horovod._native.connections import Acceptor
from horovod.runner.function import channel
from horovod.runner.function.channel import LARGEST_HEADER, Channel, Refused
from horovod.runner.function.server import FunctionServer
from horovod.runner.function.task import KEY_VARIABLE, pack, unpack

KEY = secrets.token_bytes(32)
LARGE = 5 << 20  # more than sockets hold


class Bomb:
    """Leaves a mark when unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self) -> object:
        return os.mkdir, (self.path,)


def connect(port: int, key: bytes = KEY, seconds: float = DEADLINE) -> Channel:
    return channel.connect("the caller", [("127.0.0.1", port)], key, seconds)


@pytest.fixture
def channels() -> Iterator[tuple[Channel, Channel]]:
    """The worker's and the caller's end of a connection."""
    acceptor = Acceptor(["127.0.0.1"], KEY)
    worker, caller = both(lambda: connect(acceptor.port), lambda: Channel(acceptor.accept()))
    yield worker, caller
    worker.close()
    caller.close()


class Relay:
    """Forwards one connection to `port`; `conversation` has all bytes, and `change` may replace some."""

    def __init__(self, port: int) -> None:
        self.conversation = bytearray()
        self.from_worker = bytearray()
        self.change: Callable[[bytes], bytes] = lambda data: data
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        near, _ = self._listener.accept()
        far = socket.create_connection(("127.0.0.1", self._target))
        with near, far:
            back = threading.Thread(target=self._copy, args=(far, near))
            back.start()
            self._copy(near, far, self.from_worker)
            back.join()

    def _copy(self, source: socket.socket, target: socket.socket, record: bytearray | None = None) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                self.conversation += data
                if record is not None:
                    record += data
                target.sendall(self.change(data))
        with suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._thread.join()
        self._listener.close()


@contextmanager
def serving(function: object = int) -> Iterator[FunctionServer]:
    server = FunctionServer(["127.0.0.1"], KEY, pack(function))
    try:
        yield server
    finally:
        server.close()


def do_work(link: Channel) -> None:
    """What a worker does whose function is `int` and returns 7."""
    with closing(link) as worker:
        worker.send({"kind": "hello", "rank": 0, "host": "h", "pid": 1})
        assert unpack(worker.receive().parts) is int
        worker.send({"kind": "result"}, pack(7))
        assert worker.receive().header == {"kind": "thanks"}


def test_messages_arrive_as_they_were_sent(channels: tuple[Channel, Channel]) -> None:
    worker, caller = channels
    parts = [b"", b"x", secrets.token_bytes(LARGE)]
    for sender, receiver in ((worker, caller), (caller, worker)):
        for header in ({"kind": "a"}, {"kind": "b", "ä": [1]}):
            _, message = both(lambda s=sender, h=header: s.send(h, parts), receiver.receive)
            assert message.header == header
            assert message.parts == parts


def test_both_directions_at_once(channels: tuple[Channel, Channel]) -> None:
    """Each side sends in one thread while another waits to receive, as a worker does."""
    sent = {side: secrets.token_bytes(LARGE) for side in channels}
    received: dict[Channel, list[bytes]] = {side: [] for side in channels}

    def take(side: Channel) -> None:
        received[side] += [bytes(side.receive().parts[0]) for _ in range(5)]

    def give(side: Channel) -> None:
        for _ in range(5):
            side.send({"kind": "x"}, [sent[side]])

    threads = [threading.Thread(target=work, args=(side,)) for side in channels for work in (take, give)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    worker, caller = channels
    assert received == {worker: [sent[caller]] * 5, caller: [sent[worker]] * 5}


def test_another_key_is_refused() -> None:
    with serving() as server:
        with pytest.raises(ConnectionError, match="another key"):
            connect(server.port, b"y" * 32)
        do_work(connect(server.port))
    assert [event.kind for event in server.events()] == ["result"]


def test_a_connection_is_not_reflected() -> None:
    """A process that returns to a worker all that it sends has not proven the key."""
    with socket.create_server(("127.0.0.1", 0)) as mirror:

        def reflect() -> None:
            end, _ = mirror.accept()
            with end, suppress(OSError):
                while data := end.recv(1 << 16):
                    end.sendall(data)

        thread = threading.Thread(target=reflect)
        thread.start()
        with pytest.raises(ConnectionError):
            connect(mirror.getsockname()[1], seconds=5)
        thread.join()


@pytest.mark.parametrize("position", [0, 4, 20, -1], ids=["type", "length", "middle", "tag"])
def test_changed_bytes_are_refused(position: int) -> None:
    """A process between the two changes one bit of a record."""
    acceptor = Acceptor(["127.0.0.1"], KEY)
    relay = Relay(acceptor.port)
    worker, caller = both(lambda: connect(relay.port), lambda: Channel(acceptor.accept()))
    worker.send({"kind": "first"})
    assert caller.receive().header == {"kind": "first"}

    def flip(data: bytes) -> bytes:
        changed = bytearray(data)
        changed[position] ^= 1
        return bytes(changed)

    relay.change = flip
    worker.send({"kind": "second"})
    worker.close()
    with pytest.raises(ConnectionError):
        caller.receive()
    caller.close()
    relay.close()


def test_a_recorded_worker_is_refused() -> None:
    """All bytes of a worker that was let in, sent again: nothing is accepted, nothing is answered but TLS's hello."""
    with serving() as server:
        relay = Relay(server.port)
        do_work(connect(relay.port))
        relay.close()
        with socket.create_connection(("127.0.0.1", server.port)) as stranger, suppress(OSError):
            stranger.sendall(relay.from_worker)
            while stranger.recv(1 << 16):
                pass
    assert [event.kind for event in server.events()] == ["result"]


@pytest.mark.parametrize("tls", ["0", "1"])
def test_a_recorded_run_reveals_nothing(tls: str) -> None:
    """Function, argument, result and traceback of a real worker; they are encrypted with any HOROVOD_TLS."""

    def body(argument: str) -> str:
        raise ValueError("marker of a failure: " + argument)

    with serving(lambda: body("marker of an argument")) as server:
        relay = Relay(server.port)
        command = [sys.executable, "-m", "horovod.runner.run_task", "127.0.0.1", str(relay.port)]
        environment = os.environ | {
            KEY_VARIABLE: KEY.hex(),
            "HOROVOD_TLS": tls,
            "HOROVOD_RANK": "0",
            "HOROVOD_SIZE": "1",
        }
        ended = subprocess.run(command, env=environment, capture_output=True)
        assert b"marker of a failure" in ended.stderr, ended.stderr
        relay.close()
    (event,) = server.events()
    assert event.report is not None and "marker of a failure: marker of an argument" in event.report.traceback
    assert len(relay.conversation) > 1000
    for marker in (b"marker of an argument", b"marker of a failure", b"Traceback", b"kind"):
        assert marker not in relay.conversation


@pytest.mark.parametrize("header", [b"{", b"[]", b"{}", b'{"parts": [-1]}', b'{"parts": ["1"]}', b'{"parts": 3}'])
def test_odd_headers_are_refused(channels: tuple[Channel, Channel], header: bytes) -> None:
    worker, caller = channels
    worker._connection.send(memoryview(len(header).to_bytes(4, "big") + header))
    with pytest.raises(Refused):
        caller.receive()


def test_headers_are_limited(channels: tuple[Channel, Channel]) -> None:
    worker, caller = channels
    worker._connection.send(memoryview((LARGEST_HEADER + 1).to_bytes(4, "big")))
    with pytest.raises(Refused, match="too long"):
        caller.receive()


def test_large_arrays_are_not_in_the_pickle() -> None:
    import numpy as np

    value = {"large": np.zeros(100_000), "small": np.zeros(10)}
    parts = pack(value)
    assert [len(parts), parts[1].nbytes, len(parts[0]) < 10_000] == [2, 800_000, True]
    copied = unpack([bytearray(part) for part in parts])
    assert (copied["large"] == value["large"]).all() and (copied["small"] == value["small"]).all()


def client_hello() -> bytes:
    """The first message of an ordinary TLS client, which has no key."""
    outgoing = ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), outgoing).do_handshake()
    return outgoing.read()


def attacks(bomb: bytes) -> list[bytes]:
    header = b'{"kind": "result", "parts": [%d]}' % len(bomb)
    message = len(header).to_bytes(4, "big") + header + bomb
    record = b"\x17\x03\x03" + len(message).to_bytes(2, "big") + message
    hello = client_hello()
    return [
        b"",
        bomb,
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        secrets.token_bytes(1 << 16),
        message,
        record,
        b"hvd\xa7\x01\x01",
        hello[:5],
        hello[:-1],
        hello,
        hello + record,
        hello + b"\xff" * (1 << 20),
    ]


def test_job_is_undisturbed(tmp_path: Path, meeting: Meeting) -> None:
    """Strangers of all kinds while a job runs: some stay and say nothing, none learns or changes anything."""
    mark = tmp_path / "mark"
    bomb = pickle.dumps(Bomb(mark))
    results: list[object] = []
    thread = threading.Thread(
        target=lambda: results.append(horovod.run(meet, (meeting.here, meeting.go))), name="the run"
    )
    thread.start()
    meeting.wait_for_worker()
    (port,) = {each.laddr.port for each in psutil.Process().net_connections("tcp") if each.status == "LISTEN"}
    silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(300)]  # more than are kept
    for data in attacks(bomb):
        for _ in range(5):
            with socket.create_connection(("127.0.0.1", port)) as stranger:
                try:
                    stranger.sendall(data)
                    stranger.shutdown(socket.SHUT_WR)
                    answer = b""
                    while chunk := stranger.recv(1 << 16):
                        answer += chunk
                except OSError:
                    continue
                assert len(answer) < 16  # an alert of TLS at most
    assert all(each.recv(1) == b"" for each in silent[:40])  # the oldest were closed
    meeting.let_go()
    thread.join()
    for each in silent:
        each.close()
    assert results == [[None]]
    assert not mark.exists()


def test_pickle_from_a_stranger_stays_closed(tmp_path: Path) -> None:
    """The attacks again, on a server alone: they cause no event."""
    with serving() as server:
        for data in attacks(pickle.dumps(Bomb(tmp_path / "mark"))):
            with socket.create_connection(("127.0.0.1", server.port)) as stranger:
                with suppress(OSError):  # the server may close it early
                    stranger.sendall(data)
                stranger.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # reset at close
        do_work(connect(server.port))
        (event,) = server.events()
        assert unpack(event.parts) == 7
    assert not (tmp_path / "mark").exists()


def test_broken_rules_are_told() -> None:
    """What an authenticated worker sends wrongly is the reason for its loss."""
    with serving() as server:
        for wrong in (b"{", b'{"kind": "error", "parts": []}'):
            with closing(connect(server.port)) as worker:
                worker.send({"kind": "hello", "rank": 0, "host": "h", "pid": 1})
                worker.receive()
                worker._connection.send(memoryview(len(wrong).to_bytes(4, "big") + wrong))
                with pytest.raises(ConnectionError):
                    worker.receive()
    first, second = server.events()
    assert first.kind == second.kind == "lost"
    assert "not JSON" in first.reason
    assert "ValueError" in second.reason


def test_close_ends_connections_in_every_state() -> None:
    server = FunctionServer(["127.0.0.1", "127.0.0.2"], KEY, pack(int))
    silent = socket.create_connection(("127.0.0.2", server.port))
    worker = connect(server.port)
    worker.send({"kind": "hello", "rank": 0, "host": "h", "pid": 1})
    worker.receive()
    server.close()
    with suppress(ConnectionResetError):  # if the server had not even accepted it
        assert silent.recv(1) == b""
    with pytest.raises(ConnectionError):
        worker.receive()
    assert [event.kind for event in server.events()] == ["lost"]
    silent.close()
    worker.close()


@pytest.mark.parametrize("kind", ["another key", "garbage", "silence"])
def test_worker_refuses_a_false_caller(tmp_path: Path, kind: str) -> None:
    mark = tmp_path / "mark"
    with socket.create_server(("127.0.0.1", 0)) as listener:
        other = Acceptor(["127.0.0.1"], b"o" * 32)
        thread = threading.Thread(target=lambda: both(other.accept, int))  # OSError in the end
        thread.start()
        port = other.port if kind == "another key" else listener.getsockname()[1]
        environment = os.environ | {KEY_VARIABLE: KEY.hex(), "HOROVOD_START_TIMEOUT": "1"}
        command = [sys.executable, "-m", "horovod.runner.run_task", "127.0.0.1", str(port)]
        with Child(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
            if kind == "garbage":
                connection, _ = listener.accept()
                with connection, suppress(OSError):
                    connection.sendall(pickle.dumps(Bomb(mark)) + bytes(1000))
            _, err = process.communicate(timeout=DEADLINE)
        other.close()
        thread.join()
    assert process.returncode == 1
    assert "cannot connect to the process that called it in" in err
    assert f"127.0.0.1:{port}" in err
    assert not mark.exists()


def test_run_task_is_not_for_people() -> None:
    result = subprocess.run([sys.executable, "-m", "horovod.runner.run_task"], capture_output=True, text=True)
    assert result.returncode == 2
    assert "is started by horovod.run" in result.stderr


def test_keys_stay_secret(meeting: Meeting) -> None:
    """The keys of the run and of the job are on no command line, not in the output, and not passed on by workers."""
    code = f"""
import os, subprocess
import horovod
def body():
    with open({meeting.here!r}, "w"): pass
    with open({meeting.go!r}) as pipe: pipe.read()
    return subprocess.run(["env"], capture_output=True, text=True).stdout
(environment,) = horovod.run(body, verbose=2)
print("child of a worker:", "_HOROVOD_RUN_" in environment)
"""
    with Child(
        [sys.executable, "-c", code],
        env=os.environ | {"HOROVOD_TLS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        meeting.wait_for_worker()
        family = psutil.Process(process.pid).children(recursive=True)
        names = (KEY_VARIABLE, "_HOROVOD_SECRET_KEY")
        found = {each.environ().get(name) for each in family for name in names}
        keys = {key for key in found if key}
        lines = [Path(f"/proc/{each.pid}/cmdline").read_text() for each in (*family, process)]
        meeting.let_go()
        out, _ = process.communicate(timeout=60)
    assert len(keys) == 2
    assert not [line for line in (*lines, out) for key in keys if key in line]
    assert any("horovod.runner.run_task" in line for line in lines)
    assert "child of a worker: False" in out
