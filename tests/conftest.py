"""What all test folders share."""

from __future__ import annotations

import os
import pathlib

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def horovodrun() -> str:
    """The program that is shipped: $HOROVODRUN, or the one `make` installed."""
    path = os.environ.get("HOROVODRUN") or str(ROOT / "python/horovod/bin/horovodrun")
    assert os.access(path, os.X_OK), f"{path} is missing: run make first"
    return path
