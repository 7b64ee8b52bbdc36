"""Tests of horovod.run and horovod.runner, with the launcher that is shipped."""

from __future__ import annotations

import faulthandler
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from callers import Meeting


@pytest.fixture(autouse=True)
def stacks_of_a_hang() -> Iterator[None]:
    faulthandler.dump_traceback_later(600, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture
def meeting(tmp_path: Path) -> Meeting:
    """Lets a worker and the test wait for each other."""
    for name in ("here", "go"):
        os.mkfifo(tmp_path / name)
    return Meeting(str(tmp_path / "here"), str(tmp_path / "go"))
