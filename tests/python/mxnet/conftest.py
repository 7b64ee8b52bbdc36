"""Tests that run inside every rank; every_rank says how."""

import contextlib
from collections.abc import Iterator

import mxnet as mx
import pytest
from every_rank import numbered_anew, one_test_at_a_time, pytest_configure, pytest_runtest_makereport, world


@pytest.fixture(autouse=True)
def nothing_is_left(one_test_at_a_time: None) -> Iterator[None]:
    """No test leaves operations, or errors of them, to the next."""
    yield
    with contextlib.suppress(mx.base.MXNetError):
        mx.nd.waitall()


__all__ = ["numbered_anew", "one_test_at_a_time", "pytest_configure", "pytest_runtest_makereport", "world"]
