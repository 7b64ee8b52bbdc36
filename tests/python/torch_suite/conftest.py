"""Tests that run inside every rank; every_rank says how."""

from every_rank import one_test_at_a_time, pytest_configure, pytest_runtest_makereport, world

__all__ = ["one_test_at_a_time", "pytest_configure", "pytest_runtest_makereport", "world"]
