"""deploy/preemptible on hosts of a test bed; the jobs and their exact account are those of tests/elastic."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
TESTS = HERE.parents[1]
for folder in (TESTS / "testbed", TESTS / "elastic", TESTS / "deploy/preemptible"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


@pytest.fixture(scope="session")
def platform() -> Path:
    """The Python that has the platform's packages."""
    python = TESTS.parent / ".venv-cloud/bin/python"
    if not python.exists():
        pytest.skip("the platform's packages are not installed: make .venv-cloud/stamp")
    return python


@pytest.fixture(scope="session")
def jobs(platform: Path) -> dict[str, Any]:
    """Those of live.yaml, as the platform's own parser reads them."""
    command = [platform, HERE / "live_jobs.py", TESTS.parent / "deploy/preemptible"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    loaded = json.loads(result.stdout)
    assert isinstance(loaded, dict)
    return loaded
