"""deploy/preemptible on hosts of a test bed; the jobs and their exact account are those of tests/elastic."""

from __future__ import annotations

import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[2]
for folder in (TESTS / "testbed", TESTS / "elastic", TESTS / "deploy/preemptible"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
