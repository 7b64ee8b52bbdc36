"""A worker's line to the launcher of an elastic job: changes of the hosts, and a notice before leaving.

Thread rule: any thread. `next_change` blocks without the GIL and is meant for a thread of its own.
"""

from __future__ import annotations

import ctypes
import os
from typing import NamedTuple

from horovod._native.abi import Code, ElasticEvent
from horovod._native.library import library, raise_error


class HostsChange(NamedTuple):
    """Hosts or slots were added or removed. `update` is 1 for removed, 2 for added, 3 for both."""

    timestamp: float
    update: int


class NoMoreChanges(Exception):
    """The launcher is gone, or `stop_waiting` was called."""


def is_worker() -> bool:
    """Whether the launcher of an elastic job started this process."""
    on = os.environ.get("HOROVOD_ELASTIC", "0") not in ("", "0")
    return on and bool(os.environ.get("HOROVOD_WORKER_ID") and os.environ.get("HOROVOD_GLOO_RENDEZVOUS_ADDR"))


def next_change(seconds: float = -1.0) -> HostsChange | None:
    """Wait for the next change of the hosts; None after `seconds` (negative: no limit), NoMoreChanges at the end."""
    event = ElasticEvent(struct_size=ctypes.sizeof(ElasticEvent))
    code = library().hvd_elastic_next_event(seconds, event)
    if code == Code.TIMED_OUT:
        return None
    if code == Code.ABORTED:
        raise NoMoreChanges
    if code != Code.OK:
        raise_error(code)
    return HostsChange(event.timestamp, event.change)


def stop_waiting() -> None:
    """End every `next_change`, now and later, with NoMoreChanges."""
    library().hvd_elastic_stop_waiting()


def leave(reason: str) -> None:
    """Tell the launcher that this process is about to leave; the next world is formed without it."""
    code = library().hvd_elastic_leave(reason.encode())
    if code != Code.OK:
        raise_error(code)
