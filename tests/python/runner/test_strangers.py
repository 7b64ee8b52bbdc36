"""Who does not have the key of a run gets nothing from it, changes nothing in it, and has nothing unpickled."""

from __future__ import annotations

import os
import pickle
import secrets
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import psutil
import pytest
from callers import Meeting, both, meet, tcp_pair
from child import Child

import horovod
from horovod.runner.function import channel
from horovod.runner.function.channel import LARGEST_FRAME, MAGIC, NONCE_BYTES, Channel, Refused
from horovod.runner.function.server import FunctionServer
from horovod.runner.function.task import IDENTITY_VARIABLE, KEY_VARIABLE, pack, unpack

KEY = secrets.token_bytes(32)


class Bomb:
    """Leaves a mark when unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self) -> object:
        return os.mkdir, (self.path,)


@pytest.fixture
def sockets() -> Iterator[tuple[socket.socket, socket.socket]]:
    one, other = tcp_pair()
    with one, other:
        yield one, other


def proven(sockets: tuple[socket.socket, socket.socket]) -> tuple[Channel, Channel]:
    worker, caller = both(lambda: channel.call(sockets[0], KEY), lambda: channel.answer(sockets[1], KEY))
    assert isinstance(worker, Channel) and isinstance(caller, Channel)
    return worker, caller


def test_messages_arrive_as_they_were_sent(sockets: tuple[socket.socket, socket.socket]) -> None:
    worker, caller = proven(sockets)
    parts = [b"", b"x", secrets.token_bytes(2 * LARGEST_FRAME + 17)]
    for sender, receiver in ((worker, caller), (caller, worker)):
        for header in ({"kind": "a"}, {"kind": "b", "ä": [1]}):
            _, message = both(lambda s=sender, h=header: s.send(h, parts), receiver.receive)
            assert message.header == header
            assert message.parts == parts


def test_worker_with_another_key(sockets: tuple[socket.socket, socket.socket]) -> None:
    worker, caller = both(
        lambda: channel.call(sockets[0], b"y" * 32), lambda: channel.answer(sockets[1], KEY), closing=sockets
    )
    assert isinstance(worker, Refused)
    assert isinstance(caller, ConnectionError)


def test_caller_with_another_key(sockets: tuple[socket.socket, socket.socket]) -> None:
    """A stranger who answers at the caller's address does not even get the worker's proof."""
    worker, received = both(
        lambda: channel.call(sockets[0], KEY),
        lambda: (sockets[1].recv(1 << 10), sockets[1].sendall(b"z" * 64), sockets[1].settimeout(1)),
    )
    assert isinstance(worker, Refused)
    sockets[0].close()
    assert sockets[1].recv(1 << 10) == b""
    assert received[0][: len(MAGIC)] == MAGIC


def test_proof_cannot_be_sent_back(sockets: tuple[socket.socket, socket.socket]) -> None:
    """Reflection: the caller's proof, returned to it, is not a worker's."""

    def reflect() -> None:
        sockets[0].sendall(MAGIC + b"n" * NONCE_BYTES)
        answer = sockets[0].recv(64, socket.MSG_WAITALL)
        sockets[0].sendall(answer[32:])

    _, caller = both(reflect, lambda: channel.answer(sockets[1], KEY))
    assert isinstance(caller, Refused)


@pytest.mark.parametrize("position", [0, 3, 4, 20, -1], ids=["length", "length end", "first byte", "middle", "tag"])
def test_changed_frame_is_refused(position: int) -> None:
    """Somebody between the two changes one bit of a frame."""
    (worker_end, near), (far, caller_end) = tcp_pair(), tcp_pair()
    with worker_end, near, far, caller_end:
        for end in (near, far):
            end.settimeout(10)

        def relay_handshake() -> None:
            for source, target, count in (
                (near, far, len(MAGIC) + NONCE_BYTES),
                (far, near, 64),
                (near, far, 32),
            ):
                target.sendall(source.recv(count, socket.MSG_WAITALL))

        relay = threading.Thread(target=relay_handshake)
        relay.start()
        worker, caller = both(lambda: channel.call(worker_end, KEY), lambda: channel.answer(caller_end, KEY))
        relay.join()
        worker.send({"kind": "result"})
        frame = bytearray(near.recv(1 << 10))
        frame[position] ^= 1
        far.sendall(frame)
        far.shutdown(socket.SHUT_WR)
        with pytest.raises(ConnectionError):
            caller.receive()


def test_repeated_frame_is_refused(sockets: tuple[socket.socket, socket.socket]) -> None:
    worker, caller = proven(sockets)
    worker.send({"kind": "result"})
    worker._sent = 0  # as who recorded the bytes would
    worker.send({"kind": "result"})
    caller.receive()
    with pytest.raises(Refused, match="changed on the way"):
        caller.receive()


@pytest.mark.parametrize("header", [b"{", b"[]", b"{}", b'{"parts": [-1]}', b'{"parts": ["1"]}', b'{"parts": 3}'])
def test_odd_headers_are_refused(sockets: tuple[socket.socket, socket.socket], header: bytes) -> None:
    worker, caller = proven(sockets)
    worker._send_frame(memoryview(header))
    with pytest.raises(Refused):
        caller.receive()


def test_frames_are_limited(sockets: tuple[socket.socket, socket.socket]) -> None:
    _, caller = proven(sockets)
    sockets[0].sendall((LARGEST_FRAME + 1).to_bytes(4, "big"))
    with pytest.raises(Refused, match="too long"):
        caller.receive()


def test_large_arrays_are_not_in_the_pickle() -> None:
    import numpy as np

    value = {"large": np.zeros(100_000), "small": np.zeros(10)}
    parts = pack(value)
    assert [len(parts), parts[1].nbytes, len(parts[0]) < 10_000] == [2, 800_000, True]
    copied = unpack([bytearray(part) for part in parts])
    assert (copied["large"] == value["large"]).all() and (copied["small"] == value["small"]).all()


def attacks(bomb: bytes) -> list[bytes]:
    frame = len(bomb).to_bytes(4, "big") + bomb + bytes(32)
    header = b'{"kind": "result", "parts": [%d]}' % len(bomb)
    header_frame = len(header).to_bytes(4, "big") + header + bytes(32)
    hello = MAGIC + b"n" * NONCE_BYTES
    return [
        b"",
        bomb,
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        secrets.token_bytes(1 << 16),
        MAGIC[:5],
        hello[:-1],
        hello,
        hello + bytes(32),
        hello + bytes(32) + frame,
        hello + bytes(32) + header_frame + frame,
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
    silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(300)]  # more than are put up with
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
                assert len(answer) in (0, NONCE_BYTES + 32)  # its own challenge at most
    assert all(each.recv(1) == b"" for each in silent[:40])  # the oldest have been sent away
    meeting.let_go()
    thread.join()
    for each in silent:
        each.close()
    assert results == [[None]]
    assert not mark.exists()


def test_pickle_from_a_stranger_stays_closed(tmp_path: Path) -> None:
    """The attacks again, on a server alone: no event comes of them."""
    server = FunctionServer(["127.0.0.1"], KEY, pack(int))
    try:
        for data in attacks(pickle.dumps(Bomb(tmp_path / "mark"))):
            with socket.create_connection(("127.0.0.1", server.port)) as stranger:
                with suppress(OSError):  # it may be sent away before it has said all
                    stranger.sendall(data)
                stranger.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # reset at close
        with closing(channel.call(socket.create_connection(("127.0.0.1", server.port)), KEY)) as worker:
            worker.send({"kind": "hello", "rank": 0, "host": "h", "pid": 1})
            assert unpack(worker.receive().parts) is int
            worker.send({"kind": "result"}, pack(7))
            assert worker.receive().header == {"kind": "thanks"}
        (event,) = server.events()
        assert unpack(event.parts) == 7
    finally:
        server.close()
    assert not (tmp_path / "mark").exists()


def test_broken_rules_are_told() -> None:
    """What a proven worker sends wrongly, or somebody changes on its way, is the reason for its loss."""
    server = FunctionServer(["127.0.0.1"], KEY, pack(int))
    try:
        for wrong in (b"{", b'{"kind": "error", "parts": []}'):
            with closing(channel.call(socket.create_connection(("127.0.0.1", server.port)), KEY)) as worker:
                worker.send({"kind": "hello", "rank": 0, "host": "h", "pid": 1})
                worker.receive()
                worker._send_frame(memoryview(wrong))
                with pytest.raises(ConnectionError):
                    worker.receive()
    finally:
        server.close()
    first, second = server.events()
    assert first.kind == second.kind == "lost"
    assert "not JSON" in first.reason
    assert "ValueError" in second.reason


def test_close_ends_connections_in_every_state() -> None:
    server = FunctionServer(["127.0.0.1", "127.0.0.2"], KEY, pack(int))
    silent = socket.create_connection(("127.0.0.2", server.port))
    worker = channel.call(socket.create_connection(("127.0.0.1", server.port)), KEY)
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
        environment = os.environ | {KEY_VARIABLE: KEY.hex(), "HOROVOD_START_TIMEOUT": "0"}
        command = [sys.executable, "-m", "horovod.runner.run_task", "127.0.0.1", str(listener.getsockname()[1])]
        with Child(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
            connection, _ = listener.accept()
            with connection:
                if kind == "another key":
                    with pytest.raises(OSError):
                        channel.answer(connection, b"o" * 32)
                elif kind == "garbage":
                    connection.sendall(pickle.dumps(Bomb(mark)) + bytes(1000))
                _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "cannot reach the process that called it: 127.0.0.1 port" in err
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
        names = (KEY_VARIABLE, IDENTITY_VARIABLE, "_HOROVOD_SECRET_KEY")
        found = {each.environ().get(name) for each in family for name in names}
        keys = {key for key in found if key}
        lines = [Path(f"/proc/{each.pid}/cmdline").read_text() for each in (*family, process)]
        meeting.let_go()
        out, _ = process.communicate(timeout=60)
    assert len(keys) == 3
    assert not [line for line in (*lines, out) for key in keys if key in line]
    assert any("horovod.runner.run_task" in line for line in lines)
    assert "child of a worker: False" in out
