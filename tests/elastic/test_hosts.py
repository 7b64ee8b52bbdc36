"""Elastic jobs on hosts of their own, over ssh, which fail as hosts do. As in test_faults.py, the account is exact."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from bed import Bed, Host, why_not
from job import MakeJob

HOSTS = {"hosta": 1, "hostb": 1, "hostc": 1}
OPTIONS = ("--min-np", "2", "--max-np", "3", "--blacklist-cooldown-range", "1", "1", "--elastic-timeout", "60")
ENV = {"HOROVOD_SILENCE_SECONDS": "2"}


@pytest.fixture(scope="module")
def bed() -> Iterator[Bed]:
    if reason := why_not():
        pytest.skip(f"no test bed: {reason}")
    with Bed([Host(name) for name in HOSTS], ssh=True) as bed:
        yield bed


def test_a_host_loses_its_power_and_comes_back(start: MakeJob, bed: Bed) -> None:
    job = start(HOSTS, 3, *OPTIONS, env=ENV, popen=bed["hosta"].popen)
    job.wait_until_going(3)
    crashed = time.monotonic()
    bed["hostb"].crash()
    job.wait_until_going(2, crashed)
    booted = time.monotonic()
    bed["hostb"].boot()
    job.wait_until_going(3, booted)
    job.finish()


def test_a_cable_is_pulled_and_put_back(start: MakeJob, bed: Bed) -> None:
    job = start(HOSTS, 3, *OPTIONS, env=ENV, popen=bed["hosta"].popen)
    job.wait_until_going(3)
    pulled = time.monotonic()
    bed["hostc"].cut()
    job.wait_until_going(2, pulled)
    healed = time.monotonic()
    bed["hostc"].heal()
    job.wait_until_going(3, healed)
    job.finish()
