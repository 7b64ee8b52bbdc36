"""A registry where a training job and the dispatchers and workers of its data service find each other.

The service keeps the address of every dispatcher and the workers that have registered with it; clients can wait for
them. Connections are those of horovod.run (`runner/function/channel.py`): both sides prove that they have the key, then
exchange JSON; nothing is unpickled. One connection carries one request:

    {"kind": "register_dispatcher", "dispatcher": 0, "address": "grpc://10.0.0.1:4711"}   {"kind": "done"}
    {"kind": "wait_for_dispatcher", "dispatcher": 0, "timeout": 60}          {"kind": "done", "value": "grpc://..."}
    {"kind": "wait_for_dispatcher", "dispatcher": 9, "timeout": 60}          {"kind": "IndexError", "message": "..."}

Thread rule: a service and a client may be used by any thread.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from horovod.runner.common.util import network
from horovod.runner.common.util.timeout import TimeoutException
from horovod.runner.function import channel
from horovod.runner.function.listener import Listener

Addresses = Mapping[str, Sequence[tuple[str, int]]]  # by name of the network interface
CONNECT_SECONDS = 10.0
PATIENCE_SECONDS = 30.0  # for an answer, in addition to the time-out of the request
_ERRORS: dict[str, type[Exception]] = {
    "IndexError": IndexError,
    "ValueError": ValueError,
    "TimeoutException": TimeoutException,
}
_logger = logging.getLogger("horovod.runner")


class ComputeService(Listener):
    """Runs from construction until `close`, on all addresses of this machine or those of `nics`."""

    def __init__(
        self, dispatchers: int, workers_per_dispatcher: int, key: bytes, nics: Collection[str] | None = None
    ) -> None:
        if dispatchers <= 0:
            raise ValueError(f"the number of dispatchers must be positive, not {dispatchers}")
        if workers_per_dispatcher <= 0:
            raise ValueError(f"the number of workers per dispatcher must be positive, not {workers_per_dispatcher}")
        self._workers_per_dispatcher = workers_per_dispatcher
        self._nics = nics
        self._changed = threading.Condition()
        self._dispatchers: list[str | None] = [None] * dispatchers  # the rest is guarded by _changed
        self._workers: list[set[int]] = [set() for _ in range(dispatchers)]
        self._is_over = False
        self._answering = 0  # requests that are being answered
        super().__init__(network.outside_addresses(nics) if nics else [], key, called="compute service")

    def addresses(self) -> dict[str, list[tuple[str, int]]]:
        """The addresses for clients. Loopback is last: it works on this machine only."""
        found = network.outside_addresses(self._nics)
        named = {"outside": [(address, self.port) for address in found if ":" not in address or self._nics]}
        return named if self._nics else named | {"lo": [("127.0.0.1", self.port)]}

    def close(self) -> None:
        """End the service after all requests are answered; those that wait are answered with its end."""
        self._end()
        with self._changed:
            self._changed.wait_for(lambda: self._answering == 0, channel.PATIENCE_SECONDS)
        super().close()

    shutdown = close

    def serve(self, link: channel.Channel) -> None:
        """Answer one request."""
        link.settimeout(channel.PATIENCE_SECONDS)
        header = link.receive().header
        with self._changed:
            self._answering += 1
            self._changed.notify_all()
        try:
            link.send(self._answer_or_error(header))
        finally:
            with self._changed:
                self._answering -= 1
                self._changed.notify_all()

    def _answer_or_error(self, asked: dict[str, Any]) -> dict[str, Any]:
        try:
            return {"kind": "done", "value": self._answer(asked)}
        except tuple(_ERRORS.values()) as error:
            return {"kind": type(error).__name__, "message": str(error)}
        except (KeyError, TypeError) as error:
            return {"kind": "ValueError", "message": f"the request is incomplete: {error!r}"}

    def _answer(self, asked: dict[str, Any]) -> Any:
        match asked["kind"]:
            case "register_dispatcher":
                return self._register_dispatcher(int(asked["dispatcher"]), str(asked["address"]))
            case "wait_for_dispatcher":
                return self._wait_for_dispatcher(int(asked["dispatcher"]), float(asked["timeout"]))
            case "register_worker":
                return self._register_worker(int(asked["dispatcher"]), int(asked["worker"]))
            case "wait_for_workers":
                return self._wait_for_workers(int(asked["dispatcher"]), float(asked["timeout"]))
            case "shutdown":
                return self._end()
            case "wait_for_shutdown":
                return self._wait(lambda: self._is_over, None, "")
        raise ValueError(f"the compute service does not support {asked['kind']!r}")

    def _register_dispatcher(self, dispatcher: int, address: str) -> None:
        self._check(dispatcher)
        with self._changed:
            known = self._dispatchers[dispatcher]
            if known not in (None, address):
                raise ValueError(f"dispatcher {dispatcher} is already registered with {known}, not {address}")
            self._dispatchers[dispatcher] = address
            self._changed.notify_all()

    def _wait_for_dispatcher(self, dispatcher: int, timeout: float) -> str | None:
        self._check(dispatcher)
        self._wait(
            lambda: self._dispatchers[dispatcher] is not None,
            timeout,
            f"dispatcher {dispatcher} did not register within {timeout:g} s",
        )
        with self._changed:
            return self._dispatchers[dispatcher]

    def _register_worker(self, dispatcher: int, worker: int) -> None:
        self._check(dispatcher)
        with self._changed:
            self._workers[dispatcher].add(worker)
            self._changed.notify_all()

    def _wait_for_workers(self, dispatcher: int, timeout: float) -> None:
        self._check(dispatcher)
        self._wait(
            lambda: len(self._workers[dispatcher]) >= self._workers_per_dispatcher,
            timeout,
            f"not all {self._workers_per_dispatcher} workers of dispatcher {dispatcher} came within {timeout:g} s",
        )

    def _end(self) -> None:
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def _wait(self, condition: Callable[[], bool], timeout: float | None, problem: str) -> None:
        """Wait until the condition holds; TimeoutException when it does not in time, or when the service ends."""
        with self._changed:
            self._changed.wait_for(lambda: condition() or self._is_over, timeout)
            if not condition():
                raise TimeoutException("the compute service was shut down" if self._is_over else problem)

    def _check(self, dispatcher: int) -> None:
        if not 0 <= dispatcher < len(self._dispatchers):
            raise IndexError(f"there is no dispatcher {dispatcher}: there are {len(self._dispatchers)}, from 0 on")


class ComputeClient:
    """Client of a compute service; every call makes a connection. ConnectionError if it cannot be reached."""

    def __init__(self, compute_addresses: Addresses, key: bytes, verbose: int = 1) -> None:
        self._addresses = [(str(host), int(port)) for each in compute_addresses.values() for host, port in each]
        self._key = key
        self._verbose = verbose

    def register_dispatcher(self, dispatcher_id: int, dispatcher_address: str) -> None:
        """Register the address of a dispatcher. IndexError for an unknown one, ValueError if it has another one."""
        self._ask({"kind": "register_dispatcher", "dispatcher": dispatcher_id, "address": dispatcher_address})

    def wait_for_dispatcher_registration(self, dispatcher_id: int, timeout: float) -> str:
        """Return the address of a dispatcher as soon as it is known; TimeoutException after `timeout` seconds."""
        return str(self._ask({"kind": "wait_for_dispatcher", "dispatcher": dispatcher_id}, timeout))

    def register_worker_for_dispatcher(self, dispatcher_id: int, worker_id: int) -> None:
        """Register a worker of this dispatcher."""
        self._ask({"kind": "register_worker", "dispatcher": dispatcher_id, "worker": worker_id})

    def wait_for_dispatcher_worker_registration(self, dispatcher_id: int, timeout: float) -> None:
        """Wait until the dispatcher has all its workers; TimeoutException after `timeout` seconds."""
        self._ask({"kind": "wait_for_workers", "dispatcher": dispatcher_id}, timeout)

    def shutdown(self) -> None:
        """Notify all clients that wait for it that the service is no longer needed."""
        self._ask({"kind": "shutdown"})

    def wait_for_shutdown(self) -> None:
        """Wait until a client calls `shutdown`, or the service is gone."""
        with contextlib.suppress(ConnectionError):
            self._ask({"kind": "wait_for_shutdown"}, None)

    def local_address(self) -> str:
        """The address of this machine from which it reaches the service."""
        link = self._connected()
        address = link.local_address()
        link.close()
        return address

    def _ask(self, question: dict[str, Any], timeout: float | None = 0.0) -> Any:
        """`timeout`: how long the service may take to answer; None: no limit."""
        if self._verbose >= 2:
            _logger.info("request to the compute service: %s", question)
        link = self._connected()
        try:
            link.settimeout(None if timeout is None else timeout + PATIENCE_SECONDS)
            link.send(question | {"timeout": timeout or 0.0})
            answer = link.receive().header
        finally:
            link.close()
        if answer.get("kind") == "done":
            return answer.get("value")
        raise _ERRORS.get(str(answer.get("kind")), RuntimeError)(answer.get("message", ""))

    def _connected(self) -> channel.Channel:
        """Connect to the first address where the service answers; other machines may have the same addresses."""
        return channel.connect("the compute service", self._addresses, self._key, CONNECT_SECONDS)
