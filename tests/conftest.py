"""What all test folders share."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def horovodrun() -> str:
    """The program that is shipped: $HOROVODRUN, or the one `make` installed."""
    path = os.environ.get("HOROVODRUN") or str(ROOT / "python/horovod/bin/horovodrun")
    assert os.access(path, os.X_OK), f"{path} is missing: run make first"
    return path


# ---- for the table at the end of tools/test.sh: every pytest leaves its cases in a folder

REPORTS = os.environ.pop("TEST_REPORTS", "")  # not for a pytest that a test starts
RANK_NAMES = ("HOROVOD_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
RANK = next((os.environ[name] for name in RANK_NAMES if name in os.environ), "0")
_seconds: dict[str, float] = {}
_outcomes: dict[str, str] = {}  # of the cases that did not pass


def pytest_configure() -> None:
    # SIGINT is ignored in the background and SIGHUP under nohup; programs that tests start would inherit that.
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves cases that are marked `soak` to make soak."""
    if os.environ.get("TEST_FULL") == "1":
        return
    later = [item for item in items if item.get_closest_marker("soak")]
    if later:
        config.hook.pytest_deselected(items=later)
        items[:] = [item for item in items if item not in later]


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _seconds[report.nodeid] = _seconds.get(report.nodeid, 0.0) + report.duration
    if report.outcome != "passed" and _outcomes.get(report.nodeid) != "failed":
        _outcomes[report.nodeid] = report.outcome


def pytest_sessionfinish() -> None:
    if REPORTS and RANK == "0":  # all ranks run the same cases
        path = pathlib.Path(REPORTS) / f"{os.getpid()}-{time.monotonic_ns()}.json"
        cases = (
            {"name": name, "seconds": seconds, "outcome": _outcomes.get(name, "passed")}
            for name, seconds in _seconds.items()
        )
        path.write_text("".join(f"{json.dumps(case)}\n" for case in cases))
