"""The caller's side of horovod.run: sends the function to every worker and receives the results.

Thread rule: start and close from one thread; events() from any.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from horovod.runner.function import channel
from horovod.runner.function.listener import Listener
from horovod.runner.function.task import Parts, Report, Worker, describe, own_paths


@dataclass(frozen=True)
class Event:
    """The end of a worker's part, in the order in which the caller learned of it."""

    worker: Worker
    kind: str  # "result", "error" or "lost": the connection ended without either
    parts: list[bytearray] = field(default_factory=list)  # the pickled result or exception
    report: Report | None = None  # of an error
    reason: str = ""  # why the connection of a lost worker ended, if not by its own end


class FunctionServer(Listener):
    """Sends the function to every worker that connects, and keeps what they send back."""

    def __init__(self, addresses: Sequence[str], key: bytes, function: Parts) -> None:
        self._function = function
        self._paths = own_paths()
        self._events: list[Event] = []  # guarded by _lock
        super().__init__(addresses, key)

    def events(self) -> list[Event]:
        """The results that the workers have sent so far."""
        with self._lock:
            return list(self._events)

    def serve(self, link: channel.Channel) -> None:
        """Send a worker the function, and wait for its result."""
        worker: Worker | None = None
        lost = ""
        try:
            link.settimeout(channel.PATIENCE_SECONDS)
            worker = _introduction(link.receive())
            link.settimeout(None)  # the function takes as long as it takes
            link.send({"kind": "task", "paths": self._paths}, self._function)
            self._take(_ending(worker, link.receive()))
            worker = None
            link.send({"kind": "thanks"})
        except OSError as error:
            lost = "" if isinstance(error, ConnectionResetError | BrokenPipeError) else str(error)
        except Exception as error:  # such as too little memory for the result
            lost = describe(error)
        finally:
            if worker is not None:
                self._take(Event(worker, "lost", reason=lost))

    def _take(self, event: Event) -> None:
        with self._lock:
            self._events.append(event)


def _introduction(message: channel.Message) -> Worker:
    header = message.header
    try:
        return Worker(int(header["rank"]), str(header["host"]), int(header["pid"]))
    except (KeyError, TypeError, ValueError):
        raise channel.Refused("its first message does not name its rank, host and pid") from None


def _ending(worker: Worker, message: channel.Message) -> Event:
    header = message.header
    worker = Worker(int(header.get("rank", worker.rank)), worker.host, worker.pid)  # elastic ranks change
    if header.get("kind") == "result":
        return Event(worker, "result", message.parts)
    (summary, trace), exception = (bytes(part).decode() for part in message.parts[:2]), message.parts[2:]
    return Event(
        worker,
        "error",
        exception,
        Report(summary, trace, bool(header.get("consequence")), int(header.get("origin", -1))),
    )
