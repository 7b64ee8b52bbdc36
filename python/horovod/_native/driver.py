"""The driver of an elastic job, for programs (Ray, Spark) that start the workers and carry out its decisions.

    driver = Driver(min_np=2, max_np=8)
    act(driver.hosts_discovered({"node1": 4, "node2": 4}))  # carry out the actions, in order
    while not driver.finished:
        act(next_event(seconds=driver.next_timer()))  # driver.worker_ready(...), ...; driver.timer() if there was none

The rules are in docs/elastic.md. Events of workers that no longer exist are ignored.
Thread rule: any thread; but actions have to be done in the order in which they were returned.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from horovod._native.abi import NO_RESETS, Code, DriverAction, DriverActionKind, DriverPointer, DriverSettings
from horovod._native.library import library, raise_error

# ---- actions


@dataclass(frozen=True)
class StartWorker:
    """Start a process on this slot of this host; no other running worker has it."""

    worker: int
    host: str
    slot: int


@dataclass(frozen=True)
class StopWorker:
    """End the process, first with SIGTERM; `worker_exited` must follow."""

    worker: int


@dataclass(frozen=True)
class NotifyWorker:
    """Tell the worker that the hosts have changed: 1 removed, 2 added, 3 both."""

    worker: int
    change: int
    timestamp: float


@dataclass(frozen=True)
class AssignPlace:
    """The answer to a worker that has asked. All places of a generation are consecutive, by rank."""

    worker: int
    generation: int
    host: str
    rank: int
    size: int
    local_rank: int
    local_size: int
    cross_rank: int
    cross_size: int


@dataclass(frozen=True)
class LeaveWorker:
    """The answer to a worker that has asked and gets no place: it ends with exit code 0."""

    worker: int
    text: str


@dataclass(frozen=True)
class Say:
    """One decision with its reason, to be logged: 2 is info, 3 a warning."""

    level: int
    text: str


@dataclass(frozen=True)
class Fail:
    """The job has failed and its workers are being stopped; Finish follows."""

    text: str


@dataclass(frozen=True)
class Finish:
    """No worker is left; nothing comes after this."""

    exit_code: int


Action = StartWorker | StopWorker | NotifyWorker | AssignPlace | LeaveWorker | Say | Fail | Finish

_ACTIONS: dict[int, type[Any]] = {
    DriverActionKind.DRIVER_START: StartWorker,
    DriverActionKind.DRIVER_STOP: StopWorker,
    DriverActionKind.DRIVER_NOTIFY: NotifyWorker,
    DriverActionKind.DRIVER_ASSIGN: AssignPlace,
    DriverActionKind.DRIVER_LEAVE: LeaveWorker,
    DriverActionKind.DRIVER_SAY: Say,
    DriverActionKind.DRIVER_FAIL: Fail,
    DriverActionKind.DRIVER_FINISH: Finish,
}


def _action(given: DriverAction) -> Action:
    kind = _ACTIONS[given.kind]
    values = (getattr(given, field.name) for field in fields(kind))
    action: Action = kind(*(value.decode(errors="replace") if isinstance(value, bytes) else value for value in values))
    return action


# ---- the driver


def _int32(name: str, value: int) -> int:
    if not -(2**31) <= value < 2**31:  # ctypes would cut it off
        raise ValueError(f"{name} is out of range: {value}")
    return value


def _positive(name: str, value: float | None) -> Any:
    """Zero means the default in the library; here it is None."""
    if value is None:
        return 0
    if not value > 0:
        raise ValueError(f"{name} must be more than 0, not {value}")
    return value


def _settings(
    min_np: int,
    max_np: int | None,
    np: int | None,
    reset_limit: int | None,
    elastic_timeout: float | None,
    start_timeout: float | None,
    cooldown_range: tuple[float, float] | None,
    seed: int | None,
) -> DriverSettings:
    if reset_limit is not None and reset_limit < 0:
        raise ValueError(f"reset_limit must not be negative, it is {reset_limit}")
    lower, upper = cooldown_range or (None, None)
    return DriverSettings(
        struct_size=ctypes.sizeof(DriverSettings),
        min_np=_int32("min_np", min_np),
        max_np=_int32("max_np", _positive("max_np", max_np)),
        np=_int32("np", _positive("np", np)),
        reset_limit=0 if reset_limit is None else _int32("reset_limit", reset_limit or NO_RESETS),
        elastic_timeout=_positive("elastic_timeout", elastic_timeout),
        start_timeout=_positive("start_timeout", start_timeout),
        cooldown_lower=_positive("the first of cooldown_range", lower),
        cooldown_upper=_positive("the second of cooldown_range", upper),
        seed=_positive("seed", seed),
    )


class Driver:
    """Decides about one elastic job. Every event method returns the resulting actions, in order.

    The arguments are horovodrun's options; None is their default. The first generation needs `np` workers (default:
    `min_np`), `seed` is for the random part of the hosts' rests (default: random), and `clock` returns seconds that
    never go back, at least 0.
    """

    def __init__(
        self,
        min_np: int,
        max_np: int | None = None,
        *,
        np: int | None = None,
        reset_limit: int | None = None,
        elastic_timeout: float | None = None,
        start_timeout: float | None = None,
        cooldown_range: tuple[float, float] | None = None,
        seed: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pointer = DriverPointer()
        self._library = library()  # kept until the interpreter exits
        self._clock = clock
        self._lock = threading.Lock()  # held from an event to the last of its actions
        settings = _settings(min_np, max_np, np, reset_limit, elastic_timeout, start_timeout, cooldown_range, seed)
        self._check(self._library.hvd_driver_create(settings, clock(), self._pointer))

    def __del__(self) -> None:
        if hasattr(self, "_library"):
            self._library.hvd_driver_destroy(self._pointer)

    # ---- events

    def hosts_discovered(self, hosts: Mapping[str, int]) -> list[Action]:
        """Set the current hosts and their slots."""
        names = (ctypes.c_char_p * len(hosts))(*(name.encode() for name in hosts))
        slots = (ctypes.c_int32 * len(hosts))(*(_int32(f"slots of {name}", count) for name, count in hosts.items()))
        return self._tell("hosts_discovered", names, slots, len(hosts))

    def worker_ready(self, worker: int, lost_rank: int | None = None) -> list[Action]:
        """Report that a worker asks for its next place, possibly because the heartbeats of `lost_rank` stopped."""
        return self._tell("worker_ready", worker, -1 if lost_rank is None else _int32("lost_rank", lost_rank))

    def worker_exited(self, worker: int, code: int) -> list[Action]:
        """Report that a worker's process has ended; a negative code is a signal, as in subprocess."""
        _int32("code", code)
        return self._tell("worker_exited", worker, max(code, 0), max(-code, 0))

    def worker_leaving(self, worker: int, reason: str) -> list[Action]:
        """Report that a worker will leave at its next commit, because its machine is being taken away."""
        return self._tell("worker_leaving", worker, reason.encode())

    def start_failed(self, worker: int, reason: str) -> list[Action]:
        """Report that a worker could not be started: there is no process."""
        return self._tell("start_failed", worker, reason.encode())

    def host_lost(self, host: str, reason: str) -> list[Action]:
        """Count all workers of a host as dead; their ends need not be reported."""
        return self._tell("host_lost", host.encode(), reason.encode())

    def stop(self, reason: str, exit_code: int = 1) -> list[Action]:
        """End the job because the user wants it."""
        return self._tell("stop", reason.encode(), _int32("exit_code", exit_code))

    def timer(self) -> list[Action]:
        """Report that time has passed; harmless at any time."""
        return self._tell("timer")

    # ---- questions

    def next_timer(self) -> float | None:
        """Seconds until `timer` must be called if there is no earlier event; None: never."""
        seconds = ctypes.c_double()
        with self._lock:
            self._check(self._library.hvd_driver_next_timer(self._pointer, self._clock(), seconds))
        return None if seconds.value < 0 else seconds.value

    @property
    def waiting_for(self) -> str:
        """What the job is waiting for, as text; empty if nothing."""
        with self._lock:
            text: bytes = self._library.hvd_driver_waiting_for(self._pointer)
        return text.decode(errors="replace")

    @property
    def finished(self) -> bool:
        """Whether Finish was decided."""
        with self._lock:
            return bool(self._library.hvd_driver_finished(self._pointer))

    def _tell(self, event: str, *arguments: Any) -> list[Action]:
        with self._lock:
            function = getattr(self._library, f"hvd_driver_{event}")
            self._check(function(self._pointer, self._clock(), *arguments))
            actions = []
            given = DriverAction(struct_size=ctypes.sizeof(DriverAction))
            while self._library.hvd_driver_next_action(self._pointer, given) == 1:
                actions.append(_action(given))
            return actions

    def _check(self, code: int) -> None:
        if code != Code.OK:
            raise_error(code)
