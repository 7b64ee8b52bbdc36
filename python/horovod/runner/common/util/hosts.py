"""Hosts and their slots, and which rank goes where. horovodrun itself implements the same rules."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_HOST = re.compile(r"(?P<name>(?:[\w.-]+@)?(?:\[[0-9a-fA-F:.]+(?:%\w+)?\]|[\w.-]+)):(?P<slots>[0-9]+)", re.ASCII)


@dataclass
class HostInfo:
    """A host and how many ranks it may have."""

    hostname: str
    slots: int

    @staticmethod
    def from_string(host_string: str) -> HostInfo:
        """Parse `name:slots`; an IPv6 address is in brackets."""
        found = _HOST.fullmatch(host_string.strip())
        if not found:
            raise ValueError(f"bad host {host_string!r}: expected NAME:SLOTS, as in localhost:4")
        return HostInfo(found["name"], int(found["slots"]))


@dataclass
class SlotInfo:
    """The slot of one rank."""

    hostname: str
    rank: int
    local_rank: int
    cross_rank: int
    size: int | None = None
    local_size: int | None = None
    cross_size: int | None = None

    def to_response_string(self) -> str:
        """The numbers as text: rank,size,local_rank,local_size,cross_rank,cross_size."""
        return ",".join(
            str(-1 if value is None else value)
            for value in (self.rank, self.size, self.local_rank, self.local_size, self.cross_rank, self.cross_size)
        )

    @staticmethod
    def from_response_string(response_string: str) -> SlotInfo:
        """The slot of `to_response_string`; the host's name is not in it."""
        values = [int(value) for value in response_string.split(",")]
        if len(values) != 6:
            raise ValueError(f"bad slot {response_string!r}: expected six numbers")
        rank, size, local_rank, local_size, cross_rank, cross_size = values
        return SlotInfo("", rank, local_rank, cross_rank, size, local_size, cross_size)


INVALID_SLOT_INFO = SlotInfo("", -1, -1, -1, -1, -1, -1)


def parse_hosts(hosts_string: str) -> list[HostInfo]:
    """Parse `name:slots,name:slots,...`."""
    return [HostInfo.from_string(each) for each in hosts_string.split(",")]


def parse_hosts_and_slots(hosts: str) -> tuple[list[str], dict[str, int]]:
    """The names of the hosts in order, and the slots of each."""
    parsed = parse_hosts(hosts)
    return [each.hostname for each in parsed], {each.hostname: each.slots for each in parsed}


def parse_host_files(filename: str) -> str:
    """Read a host file into the form of `parse_hosts`.

    A line is a host and its slots: `name slots=4`, `name:4`, or the bare name for one slot. Blank lines and what
    after a # are ignored.
    """
    hosts: list[str] = []
    for number, line in enumerate(Path(filename).read_text().splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        slots = [word.partition("=")[2] for word in words[1:] if word.startswith(("slots=", "max_slots="))]
        text = words[0] if _HOST.fullmatch(words[0]) else f"{words[0]}:{slots[0] if slots else 1}"
        if not _HOST.fullmatch(text):
            raise ValueError(f"{filename}, line {number}: expected NAME slots=N, not {line!r}")
        hosts.append(text)
    return ",".join(hosts)


def get_host_assignments(
    hosts: Iterable[HostInfo], min_num_proc: int, max_num_proc: int | None = None
) -> list[SlotInfo]:
    """Give every slot a rank, hosts in the given order, up to `max_num_proc` of them.

    ValueError if there are fewer slots than `min_num_proc`.
    """
    hosts = list(hosts)
    slots: list[SlotInfo] = []
    cross_sizes: Counter[int] = Counter()
    for host in hosts:
        for local_rank in range(host.slots):
            if max_num_proc is None or len(slots) < max_num_proc:
                slots.append(SlotInfo(host.hostname, len(slots), local_rank, cross_sizes[local_rank]))
                cross_sizes[local_rank] += 1
    if len(slots) < min_num_proc:
        named = ", ".join(f"{host.hostname}:{host.slots}" for host in hosts)
        raise ValueError(f"{min_num_proc} ranks need as many slots, but there are {len(slots)}: {named or 'no hosts'}")
    local_sizes = Counter(slot.hostname for slot in slots)
    for slot in slots:
        slot.size = len(slots)
        slot.local_size = local_sizes[slot.hostname]
        slot.cross_size = cross_sizes[slot.local_rank]
    return slots
