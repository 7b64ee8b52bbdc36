"""A few hundred random programs; `make soak` runs many more. The seed is another each time, and is printed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import resources

RUN = Path(__file__).with_name("run.py")
PROGRAMS = os.environ.get("DIFFERENTIAL_PROGRAMS", "300")


def run(*arguments: str, limit: float = 550) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(RUN), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=limit)


def test_random_programs() -> None:
    ended = run("--programs", PROGRAMS)
    print(ended.stdout, end="")
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.parametrize(
    ("fault", "told"),
    [("value", "1 of "), ("hang", "no program was finished"), ("crash", "exit code -11")],
)
def test_what_goes_wrong_is_found(fault: str, told: str) -> None:
    """Process 0 gets an element wrong, waits forever, or crashes."""
    seconds = "4" if fault == "value" else "0"
    ended = run("--job", "1.0", "--ranks", "2", "--inject", fault, "--hang-seconds", "3", "--shorten-seconds", seconds)
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert told in ended.stderr, ended.stderr
    assert "run.py --job 1.0 --ranks 2" in ended.stderr, ended.stderr
    if fault == "value":
        assert "the shortest that goes wrong in this way too" in ended.stderr, ended.stderr


def test_growth_is_found() -> None:
    """What grows in every part of a run, not what is there once."""
    still = [resources.Resources(20, 3, 100 << 20, 120 << 20)] * 40
    assert resources.growth(still) == ""
    once = [each._replace(descriptors=25, allocated=150 << 20) for each in still[:20]]
    assert resources.growth(still[:20] + once) == ""
    assert "descriptors grow" in resources.growth([each._replace(descriptors=i // 4) for i, each in enumerate(still)])
    assert "threads grow" in resources.growth([each._replace(threads=i) for i, each in enumerate(still)])
    assert "allocated grow" in resources.growth([each._replace(allocated=i << 18) for i, each in enumerate(still)])
