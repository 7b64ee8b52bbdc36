"""Tests that run inside every rank; every_rank says how. The default group has the backend "hvd"."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import torch.distributed as dist
from every_rank import one_test_at_a_time, pytest_configure, pytest_runtest_makereport, world

import horovod.torch.distributed  # noqa: F401 - makes the backend known, where no entry point is installed

__all__ = ["one_test_at_a_time", "pytest_configure", "pytest_runtest_makereport", "world"]

_VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


@pytest.fixture(scope="module")
def groups(world: None) -> Iterator[tuple[dist.ProcessGroup, dist.ProcessGroup]]:
    """The default group, and one of Gloo with the same ranks."""
    for variable in _VARIABLES:  # of another file's tests
        os.environ.pop(variable, None)
    dist.init_process_group("hvd")
    yield dist.group.WORLD, dist.new_group(backend="gloo")
    dist.destroy_process_group()
