"""That no process holds up its test."""

from __future__ import annotations

import signal
import subprocess

import child
import pytest
from child import Child

FOREVER = ["sleep", "infinity"]


def test_a_failure_in_the_block_ends_the_process() -> None:
    with pytest.raises(AssertionError, match="as it was"), Child(FOREVER, stdout=subprocess.PIPE) as process:
        raise AssertionError("as it was")
    assert process.returncode == -signal.SIGKILL


def test_a_process_that_does_not_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "PATIENCE", 0.01)
    with Child(FOREVER) as process:
        pass
    assert process.returncode == -signal.SIGKILL


def test_a_process_that_ends_is_waited_for() -> None:
    with Child(["sh", "-c", "read -r line; exit 7"], stdin=subprocess.PIPE) as process:
        pass  # leaving closes its input
    assert process.returncode == 7
