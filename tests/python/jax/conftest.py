"""Tests that run inside every rank; every_rank says how."""

from every_rank import (
    numbered_anew,
    one_test_at_a_time,
    places_are_given_back,
    pytest_configure,
    pytest_runtest_makereport,
    world,
)

__all__ = [
    "numbered_anew",
    "one_test_at_a_time",
    "places_are_given_back",
    "pytest_configure",
    "pytest_runtest_makereport",
    "world",
]
