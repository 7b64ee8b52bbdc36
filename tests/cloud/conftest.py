"""Deployments as a whole, on hosts of a test bed: minutes each, so they are part of `make soak` (stage cloud)."""

from __future__ import annotations

import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
for folder in (TESTS / "cloud", TESTS / "testbed", TESTS / "deploy/openstack", TESTS / "deploy/preemptible"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
