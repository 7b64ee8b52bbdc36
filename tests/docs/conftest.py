"""Two hosts, node1 and node2, on which the commands of the pages are run; without them, those for one machine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from bed import Bed, Host, why_not


@pytest.fixture(scope="session")
def nodes() -> Iterator[Bed | str]:
    """The hosts, or why there are none."""
    if reason := why_not():
        yield reason
        return
    with Bed([Host("node1"), Host("node2")], ssh=True) as bed:
        yield bed
