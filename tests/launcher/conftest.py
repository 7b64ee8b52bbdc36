"""Runs the horovodrun that is shipped: $HOROVODRUN, or the one `make` installed."""

import os
import pathlib
import subprocess
import sys
from collections.abc import Callable

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEADLINE = 60  # seconds until a test gives up waiting for a process

Run = Callable[..., subprocess.CompletedProcess[bytes]]


@pytest.fixture(scope="session")
def horovodrun() -> str:
    path = os.environ.get("HOROVODRUN") or str(ROOT / "python/horovod/bin/horovodrun")
    assert os.access(path, os.X_OK), f"{path} is missing: run make first"
    return path


@pytest.fixture
def run(horovodrun: str) -> Run:
    def call(*arguments: str, **options: object) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run([horovodrun, *arguments], capture_output=True, timeout=DEADLINE, **options)  # type: ignore[call-overload,no-any-return]

    return call


@pytest.fixture
def python() -> Callable[[str], list[str]]:
    """A command that runs a piece of Python."""
    return lambda code: [sys.executable, "-c", code]
