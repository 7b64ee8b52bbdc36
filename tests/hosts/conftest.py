"""Hosts that differ in what they have, and a fleet on them that tests share as long as all of it lives."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
for folder in (HERE, HERE.parent / "python", HERE.parent / "testbed", HERE.parents[1] / "python"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

from bed import Bed, Host, why_not  # noqa: E402
from bed.fixtures import make_bed  # noqa: E402
from fleet import Fleet  # noqa: E402

__all__ = ["make_bed"]

# hosta and hostb have both kinds of addresses, hostc IPv6 alone; no two name their NICs alike; all have docker0.
HOSTS = [
    Host("hosta", name_is=(4, 6), docker0=True),
    Host("hostb", nics=["ib0", "enp3s0"], name_is=(4, 6), docker0=True),
    Host("hostc", nics=["wlan7"], ipv4=False, docker0=True),
]
RANKS = {"hosta": 2, "hostb": 2, "hostc": 1}


class Shared:
    """A bed and its fleet, created on first use and again after a test that damaged them."""

    def __init__(self, directories: Callable[[], Path]) -> None:
        self._directories = directories
        self._bed: Bed | None = None
        self._fleet: Fleet | None = None

    def bed(self) -> Bed:
        """Without processes, for worlds of the test's own."""
        self._end_fleet()
        if self._bed is None:
            self._bed = Bed(HOSTS)
        return self._bed

    def fleet(self) -> Fleet:
        if self._fleet is None or not self._fleet.is_whole:
            self._end_fleet()
            self._fleet = Fleet(self.bed(), RANKS, self._directories())
        return self._fleet

    def close(self) -> None:
        self._end_fleet()
        if self._bed:
            self._bed.close()
            self._bed = None

    def _end_fleet(self) -> None:
        if self._fleet is None:
            return
        is_whole = self._fleet.is_whole
        self._fleet.close()
        self._fleet = None
        if not is_whole:  # whatever the test broke
            self.close()


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    if reason := why_not():
        pytest.skip(f"no test bed: {reason}")
    shared = Shared(lambda: tmp_path_factory.mktemp("fleet"))
    yield shared
    shared.close()


@pytest.fixture
def fleet(shared: Shared) -> Fleet:
    return shared.fleet()


@pytest.fixture
def bed(shared: Shared) -> Bed:
    return shared.bed()
