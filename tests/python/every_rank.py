"""What a suite needs that runs inside every rank of one job: horovodrun -np N python -m pytest tests/python/parallel

The conftest of such a folder takes these names over. Every rank runs the same tests in the same order; what differs per
rank is the data. The first failure on any rank ends the job: that rank shuts down, which fails what the others wait
for. For what hangs on all ranks each test has a time limit, after which the process shows its stacks and exits.
"""

from __future__ import annotations

import faulthandler
import os
from collections.abc import Generator, Iterator

import pytest

import horovod.numpy as hvd

# Seconds; only for what hangs, far above what a test takes on a slow machine. With MPI, which polls, one test has taken
# more than 200 s while twenty other processes were ready to run.
TIME_LIMIT = 450
stderr = pytest.StashKey[int]()
failed = pytest.StashKey[bool]()  # of the session: this rank is out of step with the others


def pytest_configure(config: pytest.Config) -> None:
    config.option.maxfail = 1
    config.stash[stderr] = os.dup(2)  # pytest does not capture here; within tests it would swallow the stacks


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        item.session.stash[failed] = True
    return report


@pytest.fixture(scope="session", autouse=True)
def world(request: pytest.FixtureRequest) -> Iterator[None]:
    os.environ.setdefault("HOROVOD_TIMELINE", "DYNAMIC")
    hvd.init(process_sets="dynamic")
    yield
    if not request.session.stash.get(failed, False):
        hvd.barrier()
    hvd.shutdown()


@pytest.fixture(autouse=True)
def one_test_at_a_time(world: None, request: pytest.FixtureRequest) -> Iterator[None]:
    faulthandler.dump_traceback_later(TIME_LIMIT, exit=True, file=request.config.stash[stderr])
    yield
    if not request.session.stash.get(failed, False):
        hvd.barrier()
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture
def numbered_anew(one_test_at_a_time: None, request: pytest.FixtureRequest) -> Iterator[None]:
    """For tests in which ranks issue different numbers of operations: unnamed ones of later tests must match again."""
    yield
    if request.session.stash.get(failed, False):
        return
    hvd.barrier()
    hvd.shutdown()
    hvd.init(process_sets="dynamic")


_PLACE = [f"HOROVOD_{name}" for name in ("RANK", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE", "HOSTNAME")]


def change_places() -> None:
    """Form a world of the same size in which every process has the place of the next one, as after an elastic change.

    For tests that use `places_are_given_back`.
    """
    places = hvd.allgather_object({name: os.environ[name] for name in _PLACE if name in os.environ})
    os.environ.update(places[(hvd.rank() + 1) % hvd.size()])
    hvd.shutdown()
    hvd.init(process_sets="dynamic")


@pytest.fixture
def places_are_given_back(one_test_at_a_time: None, request: pytest.FixtureRequest) -> Iterator[None]:
    """Ranks are those of before after the test."""
    before = {name: os.environ[name] for name in _PLACE if name in os.environ}
    yield
    os.environ.update(before)
    if request.session.stash.get(failed, False):
        return
    hvd.shutdown()
    hvd.init(process_sets="dynamic")
