"""Jobs under mpirun. Each test that asks for `flavour` runs with every MPI of flavours.py."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
for folder in (HERE.parents[1] / "hosts", HERE, HERE.parent, HERE.parents[1] / "testbed"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

from bed.fixtures import make_bed  # noqa: E402
from flavours import FLAVOURS, Flavour  # noqa: E402

__all__ = ["make_bed"]


@pytest.fixture(params=list(FLAVOURS))
def flavour(request: pytest.FixtureRequest) -> Flavour:
    chosen = FLAVOURS[request.param]
    if reason := chosen.why_not():
        pytest.skip(reason)
    return chosen
