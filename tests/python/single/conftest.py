"""Tests of one process, or of processes that they start themselves."""

from __future__ import annotations

import faulthandler
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def stacks_of_a_hang() -> Iterator[None]:
    faulthandler.dump_traceback_later(600, exit=True)  # above all limits of the tests themselves
    yield
    faulthandler.cancel_dump_traceback_later()
