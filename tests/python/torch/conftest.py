"""Tests that run inside every rank; every_rank says how."""

import pytest
from every_rank import (
    numbered_anew,
    one_test_at_a_time,
    places_are_given_back,
    pytest_configure,
    pytest_runtest_makereport,
    world,
)


@pytest.fixture
def waits_in_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Optimizers that are made now wait for gradients in step(), not at the end of backward."""
    monkeypatch.setenv("HOROVOD_TORCH_WAIT_IN_STEP", "1")


__all__ = [
    "numbered_anew",
    "one_test_at_a_time",
    "places_are_given_back",
    "pytest_configure",
    "pytest_runtest_makereport",
    "waits_in_step",
    "world",
]
