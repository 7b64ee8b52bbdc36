"""Tests that run inside every rank of one job: horovodrun -np N python -m pytest tests/python/parallel

Every rank runs the same tests in the same order; what differs per rank is the data. A test that fails on one rank only
leaves the others waiting, so each has a time limit after which the process shows its stacks and exits.
"""

from __future__ import annotations

import faulthandler
import os
from collections.abc import Iterator

import pytest

import horovod.numpy as hvd

TIME_LIMIT = 60


@pytest.fixture(scope="session", autouse=True)
def world() -> Iterator[None]:
    os.environ.setdefault("HOROVOD_TIMELINE", "DYNAMIC")
    hvd.init(process_sets="dynamic")
    yield
    hvd.barrier()
    hvd.shutdown()


@pytest.fixture(autouse=True)
def one_test_at_a_time(world: None) -> Iterator[None]:
    faulthandler.dump_traceback_later(TIME_LIMIT, exit=True)
    yield
    hvd.barrier()
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture
def numbered_anew(one_test_at_a_time: None) -> Iterator[None]:
    """For tests in which ranks issue different numbers of operations: unnamed ones of later tests must match again."""
    yield
    hvd.barrier()
    hvd.shutdown()
    hvd.init(process_sets="dynamic")
