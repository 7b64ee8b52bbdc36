"""For a conftest.py: `from bed.fixtures import make_bed`. It skips, with the reason, where no bed can be made."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from bed.bed import Bed
from bed.host import Host
from bed.requirements import why_not


@pytest.fixture
def make_bed() -> Iterator[Callable[..., Bed]]:
    """make_bed("hosta", Host("hostb", nics=["ib0"]), ssh=True); what was made is gone after the test."""
    if reason := why_not():
        pytest.skip(f"no test bed: {reason}")
    with contextlib.ExitStack() as beds:

        def make(*hosts: str | Host, **options: Any) -> Bed:
            specs = [Host(host) if isinstance(host, str) else host for host in hosts]
            return beds.enter_context(Bed(specs, **options))

        yield make
