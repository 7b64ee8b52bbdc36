"""The service at which dispatchers, workers and training ranks of a data service find each other."""

from __future__ import annotations

import contextlib
import pickle
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from horovod.runner.common.service.compute_service import ComputeClient, ComputeService
from horovod.runner.common.util.timeout import TimeoutException
from horovod.runner.function import channel

KEY = b"k" * 32
LONG = 30.0  # seconds; for what is there, or comes


@pytest.fixture
def service() -> Iterator[ComputeService]:
    made = ComputeService(2, 3, KEY)
    yield made
    made.close()


@pytest.fixture
def client(service: ComputeService) -> ComputeClient:
    return ComputeClient(service.addresses(), KEY)


class Asking:
    """A call in a thread of its own, and what came of it."""

    def __init__(self, call: Any, *args: Any) -> None:
        self._result: Any = None

        def body() -> None:
            try:
                self._result = call(*args)
            except Exception as error:
                self._result = error

        self._thread = threading.Thread(target=body)
        self._thread.start()

    def result(self) -> Any:
        self._thread.join()
        return self._result


@pytest.mark.parametrize(("dispatchers", "workers"), [(0, 1), (-1, 1), (1, 0), (1, -1)])
def test_numbers_are_positive(dispatchers: int, workers: int) -> None:
    with pytest.raises(ValueError, match="positive"):
        ComputeService(dispatchers, workers, KEY)


def test_a_dispatcher_is_waited_for(client: ComputeClient) -> None:
    waiting = [Asking(client.wait_for_dispatcher_registration, 1, LONG) for _ in range(3)]
    client.register_dispatcher(0, "grpc://a:1")
    client.register_dispatcher(1, "grpc://b:2")
    assert [each.result() for each in waiting] == ["grpc://b:2"] * 3
    assert client.wait_for_dispatcher_registration(0, 0) == "grpc://a:1"


def test_all_workers_are_waited_for(client: ComputeClient) -> None:
    waiting = Asking(client.wait_for_dispatcher_worker_registration, 0, LONG)
    for worker in (0, 1, 1):  # a repeated call counts once
        client.register_worker_for_dispatcher(0, worker)
    with pytest.raises(TimeoutException, match="not all 3 workers of dispatcher 0"):
        client.wait_for_dispatcher_worker_registration(0, 0.05)
    client.register_worker_for_dispatcher(0, 2)
    assert waiting.result() is None
    with pytest.raises(TimeoutException):
        client.wait_for_dispatcher_worker_registration(1, 0)


def test_a_dispatcher_has_one_address(client: ComputeClient) -> None:
    client.register_dispatcher(0, "grpc://a:1")
    client.register_dispatcher(0, "grpc://a:1")
    with pytest.raises(ValueError, match="grpc://a:1"):
        client.register_dispatcher(0, "grpc://b:2")


@pytest.mark.parametrize("dispatcher", [-1, 2])
def test_unknown_dispatchers(client: ComputeClient, dispatcher: int) -> None:
    for call in (
        lambda: client.register_dispatcher(dispatcher, "grpc://a:1"),
        lambda: client.wait_for_dispatcher_registration(dispatcher, 1),
        lambda: client.register_worker_for_dispatcher(dispatcher, 0),
        lambda: client.wait_for_dispatcher_worker_registration(dispatcher, 1),
    ):
        with pytest.raises(IndexError, match="no dispatcher"):
            call()


def test_time_runs_out(client: ComputeClient) -> None:
    with pytest.raises(TimeoutException, match="dispatcher 0 did not register"):
        client.wait_for_dispatcher_registration(0, 0.05)


def test_shutdown_reaches_everybody_who_waits_for_it(client: ComputeClient) -> None:
    waiting = [Asking(client.wait_for_shutdown) for _ in range(3)]
    client.shutdown()
    assert [each.result() for each in waiting] == [None] * 3
    client.wait_for_shutdown()
    client.shutdown()


def test_whoever_waits_for_something_else_is_told_that_it_will_not_come(client: ComputeClient) -> None:
    waiting = Asking(client.wait_for_dispatcher_registration, 0, LONG)
    client.shutdown()
    result = waiting.result()
    assert isinstance(result, TimeoutException)
    assert "shut down" in str(result)


def test_the_end_of_the_service_ends_all_waiting(service: ComputeService, client: ComputeClient) -> None:
    client.register_dispatcher(0, "grpc://a:1")
    waiting = Asking(client.wait_for_shutdown)
    service.close()
    assert waiting.result() is None
    with pytest.raises(ConnectionError, match="cannot connect to the compute service"):
        client.register_dispatcher(0, "grpc://a:1")


def test_another_key_is_refused(service: ComputeService) -> None:
    stranger = ComputeClient(service.addresses(), b"x" * 32)
    with pytest.raises(ConnectionError, match="another key"):
        stranger.shutdown()
    assert ComputeClient(service.addresses(), KEY).local_address()


def test_the_right_address_is_found_among_wrong_ones(service: ComputeService) -> None:
    other = ComputeService(1, 1, b"x" * 32)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        addresses = {
            "a": [("127.0.0.1", closed.getsockname()[1]), ("127.0.0.1", other.port)],
            "b": [("127.0.0.1", service.port)],
        }
        ComputeClient(addresses, KEY).register_dispatcher(0, "grpc://a:1")
    other.close()
    assert ComputeClient(service.addresses(), KEY).wait_for_dispatcher_registration(0, 0) == "grpc://a:1"


class Trap:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self._path,)


def test_nothing_is_unpickled(service: ComputeService, tmp_path: Path) -> None:
    """Neither before the key was proven, nor after."""
    trap = pickle.dumps(Trap(tmp_path / "sprung"))
    with socket.create_connection(("127.0.0.1", service.port)) as stranger:
        stranger.sendall(trap + bytes(100))
        stranger.settimeout(LONG)
        with contextlib.suppress(ConnectionResetError):
            while stranger.recv(1 << 10):  # an alert of TLS at most
                pass
    link = channel.connect("the service", [("127.0.0.1", service.port)], KEY, LONG)
    link.send({"kind": "register_dispatcher"}, [trap])
    assert link.receive().header["kind"] == "ValueError"
    link.close()
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize("question", [{}, {"kind": "format"}, {"kind": "register_dispatcher", "dispatcher": "one"}])
def test_nonsense_is_answered_with_an_error(service: ComputeService, question: dict[str, Any]) -> None:
    link = channel.connect("the service", [("127.0.0.1", service.port)], KEY, LONG)
    link.send(question)
    assert link.receive().header["kind"] == "ValueError"
    link.close()


def test_a_signal_handler_ends_a_wait(service: ComputeService, client: ComputeClient) -> None:
    """As Ctrl-C does."""
    raised = threading.Event()

    class Interrupted(Exception):
        pass

    def interrupt(*_: object) -> None:
        if not raised.is_set():
            raised.set()
            raise Interrupted

    def send() -> None:
        with service._changed:
            service._changed.wait_for(lambda: service._answering == 1)
        while not raised.wait(0.05):
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, interrupt)
    thread = threading.Thread(target=send)
    thread.start()
    try:
        with pytest.raises(Interrupted):
            client.wait_for_shutdown()
    finally:
        thread.join()
        signal.signal(signal.SIGUSR1, before)
