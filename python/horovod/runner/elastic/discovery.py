"""The currently available hosts. Subclass `HostDiscovery`; `HostManager` tracks changes.

Thread rule: HostManager may be asked from any thread; one thread at a time updates it.
"""

from __future__ import annotations

import random
import subprocess
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping

from horovod.common.elastic import HostUpdateResult
from horovod.runner.common.util.hosts import HostInfo
from horovod.runner.elastic.constants import COOLDOWN_LOWER_LIMIT_SECONDS, COOLDOWN_UPPER_LIMIT_SECONDS


class HostDiscovery:
    """Finds the hosts that may be used."""

    def find_available_hosts_and_slots(self) -> dict[str, int]:
        """The current hosts, and how many ranks each may have."""
        raise NotImplementedError


class HostDiscoveryScript(HostDiscovery):
    """Asks a shell command, which prints a line `host` or `host:slots` for every host."""

    def __init__(self, discovery_script: str, slots: int | None = None) -> None:
        self.script = discovery_script
        self.default_slots = slots

    def find_available_hosts_and_slots(self) -> dict[str, int]:
        """Run the script; RuntimeError if it fails, ValueError if it prints something else."""
        result = subprocess.run(self.script, shell=True, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if result.returncode != 0:
            raise RuntimeError(f"{self.script} ended with exit code {result.returncode}: {result.stderr.strip()}")
        hosts = [self._host(line) for line in result.stdout.splitlines() if line.strip()]
        return {host.hostname: host.slots for host in hosts}

    def _host(self, line: str) -> HostInfo:
        text = line.strip()
        if self.default_slots is not None and (":" not in text or text.endswith("]")):
            text = f"{text}:{self.default_slots}"
        try:
            return HostInfo.from_string(text)
        except ValueError:
            raise ValueError(f"{self.script} printed {line!r}: expected HOST:SLOTS, or HOST with known slots") from None


class FixedHosts(HostDiscovery):
    """Hosts that only `set` changes."""

    def __init__(self, host_slots: Mapping[str, int]) -> None:
        self._host_slots = dict(host_slots)

    def find_available_hosts_and_slots(self) -> dict[str, int]:
        """The hosts that were last set."""
        return dict(self._host_slots)

    def set(self, host_slots: Mapping[str, int]) -> None:
        """Replace the hosts."""
        self._host_slots = dict(host_slots)


class DiscoveredHosts:
    """A snapshot of the hosts. Immutable."""

    def __init__(self, host_slots: Mapping[str, int], host_assignment_order: list[str]) -> None:
        self._host_slots = dict(host_slots)
        self._order = list(host_assignment_order)

    @property
    def host_slots(self) -> dict[str, int]:
        """Hosts and their slots."""
        return dict(self._host_slots)

    @property
    def available_hosts(self) -> set[str]:
        """The names of the hosts."""
        return set(self._host_slots)

    @property
    def host_assignment_order(self) -> list[str]:
        """The hosts that get ranks, the one known for longest first."""
        return list(self._order)

    def get_slots(self, host: str) -> int:
        """The slots of a host, 0 if it is not there."""
        return self._host_slots.get(host, 0)

    def count_available_slots(self) -> int:
        """The slots of all hosts that get ranks."""
        return sum(self.get_slots(host) for host in self._order)


class _Blacklist:
    """Hosts that failed, and until when they are not used: forever without a range."""

    def __init__(self, cooldown_range: tuple[int, int] | None, clock: Callable[[], float]) -> None:
        if cooldown_range is not None:
            least, most = cooldown_range
            if not COOLDOWN_LOWER_LIMIT_SECONDS <= least <= most <= COOLDOWN_UPPER_LIMIT_SECONDS:
                limits = f"{COOLDOWN_LOWER_LIMIT_SECONDS} <= min <= max <= {COOLDOWN_UPPER_LIMIT_SECONDS}"
                raise ValueError(f"bad cooldown range {least} to {most}: expected {limits} seconds")
        self._range = cooldown_range
        self._clock = clock
        self._times: dict[str, int] = {}
        self._until: dict[str, float] = {}

    def add(self, host: str) -> None:
        if host in self:
            return
        times = self._times.get(host, 0)
        self._times[host] = times + 1
        self._until[host] = float("inf") if self._range is None else self._clock() + self._delay(times)

    def __contains__(self, host: str) -> bool:
        return self._clock() < self._until.get(host, float("-inf"))

    def _delay(self, times: int) -> float:
        assert self._range is not None
        least, most = self._range
        # Doubled each time; randomised, so that hosts that failed together do not return together.
        return min(most, least * 2.0 ** min(times, 32) + random.random() * least)


class HostManager:
    """Keeps track of what a discovery finds, and of hosts that failed."""

    def __init__(
        self,
        discovery: HostDiscovery,
        cooldown_range: tuple[int, int] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._discovery = discovery
        self._lock = threading.Lock()
        self._blacklist = _Blacklist(cooldown_range, clock)  # all below is guarded by _lock
        self._current = DiscoveredHosts({}, [])
        self._events: dict[str, threading.Event] = {}

    @property
    def current_hosts(self) -> DiscoveredHosts:
        """The hosts of the last update, without those that are blacklisted now."""
        with self._lock:
            return self._without_blacklisted(self._current)

    def update_available_hosts(self) -> int:
        """Run the discovery; returns the changes to the previously usable hosts as a HostUpdateResult."""
        found = self._discovery.find_available_hosts_and_slots()
        with self._lock:
            before = self._current
            order = OrderedDict.fromkeys([host for host in before.host_assignment_order if host in found])
            order.update(OrderedDict.fromkeys(host for host in found if host not in self._blacklist))
            self._current = DiscoveredHosts(found, [host for host in order if host not in self._blacklist])
            return _difference(before, self._current)

    def blacklist(self, host: str) -> None:
        """Stop using a host, for a time or forever, and set its event."""
        with self._lock:
            self._blacklist.add(host)
            self._events.setdefault(host, threading.Event()).set()
            self._current = self._without_blacklisted(self._current)

    def is_blacklisted(self, host: str) -> bool:
        """Whether a host may not be used now."""
        with self._lock:
            return host in self._blacklist

    def get_host_event(self, host: str) -> threading.Event:
        """An event that is set when the host is blacklisted."""
        with self._lock:
            event = self._events.get(host)
            if event is None or (event.is_set() and host not in self._blacklist):
                event = self._events[host] = threading.Event()
            return event

    def _without_blacklisted(self, hosts: DiscoveredHosts) -> DiscoveredHosts:
        return DiscoveredHosts(
            hosts.host_slots, [host for host in hosts.host_assignment_order if host not in self._blacklist]
        )


def _difference(before: DiscoveredHosts, after: DiscoveredHosts) -> int:
    old = {host: before.get_slots(host) for host in before.host_assignment_order}
    new = {host: after.get_slots(host) for host in after.host_assignment_order}
    result = HostUpdateResult.no_update
    if any(new.get(host, 0) < slots for host, slots in old.items()):
        result |= HostUpdateResult.removed
    if any(slots > old.get(host, 0) for host, slots in new.items()):
        result |= HostUpdateResult.added
    return result
