"""Where the ranks of a measurement sit, and what joins them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from machine import ROOT

sys.path.append(str(ROOT / "tests" / "testbed"))
if TYPE_CHECKING:
    from bed import Bed


@dataclass(frozen=True)
class Place:
    name: str  # in tables
    kind: str  # what --only chooses, and what programs there are for it
    rate: str | None = None  # of the link between hosts; None: as fast as the machine can


SHM = Place("shared memory", "shm")
TCP = Place("loopback TCP", "tcp")
GIGABIT = Place("2 hosts, 1 Gbit/s", "hosts", "1gbit")
TEN_GIGABIT = Place("2 hosts, 10 Gbit/s", "hosts", "10gbit")
UNLIMITED = Place("2 hosts, no limit", "hosts")
PLACES = (SHM, TCP, GIGABIT, TEN_GIGABIT, UNLIMITED)
KINDS = ("shm", "tcp", "hosts")


@dataclass(frozen=True)
class Seat:
    """Of one rank."""

    host: str | None  # of the test bed; None: the machine itself
    nic: str
    rank: int
    local_rank: int
    local_size: int
    cross_rank: int
    cross_size: int

    def world(self, ranks: int, address: str, port: int, key: str) -> dict[str, str]:
        """The variables by which our programs know their place; rank 0 serves the store at the address."""
        return {
            "HOROVOD_RANK": str(self.rank),
            "HOROVOD_SIZE": str(ranks),
            "HOROVOD_LOCAL_RANK": str(self.local_rank),
            "HOROVOD_LOCAL_SIZE": str(self.local_size),
            "HOROVOD_CROSS_RANK": str(self.cross_rank),
            "HOROVOD_CROSS_SIZE": str(self.cross_size),
            "HOROVOD_HOSTNAME": self.host or f"loopback{self.rank}",
            "HOROVOD_GLOO_RENDEZVOUS_ADDR": address,
            "HOROVOD_GLOO_RENDEZVOUS_PORT": str(port),
            "HOROVOD_GLOO_IFACE": self.nic,
            "_HOROVOD_SECRET_KEY": key,
        }


HOSTS = (("hosta", "eth0"), ("hostb", "ens3"))
NETWORK = "10.77.0.0/24"  # of the test bed
FIRST_ADDRESS = "10.77.0.1"


def seats(place: Place, ranks: int) -> Sequence[Seat]:
    """Between hosts the ranks are shared out evenly; over loopback TCP each counts as a host of its own."""
    if place.kind == "hosts":
        share = ranks // len(HOSTS)
        return [
            Seat(*HOSTS[r // share], r, r % share, share, r // share, len(HOSTS)) for r in range(share * len(HOSTS))
        ]
    return [Seat(None, "lo", r, 0, 1, r, ranks) for r in range(ranks)]


class Network:
    """The hosts between which places of kind "hosts" are measured."""

    def __init__(self) -> None:
        self._bed: Bed | None = None

    @staticmethod
    def why_not() -> str | None:
        from bed import why_not

        return why_not()

    def prepare(self, place: Place) -> None:
        if place.kind != "hosts":
            return
        if self._bed is None:
            from bed import Bed, Host

            self._bed = Bed([Host(name, nics=[nic]) for name, nic in HOSTS], ssh=True)
        self._bed["hostb"].limit(place.rate)  # both directions of the only link there is

    def command(self, host: str | None, command: list[str]) -> list[str]:
        if host is None:
            return command
        assert self._bed
        return self._bed[host].command(command)

    def close(self) -> None:
        """Also ends whatever a program left running in a host; the next prepare() makes new ones."""
        if self._bed:
            self._bed.close()
            self._bed = None
