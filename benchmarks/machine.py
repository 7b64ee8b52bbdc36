"""Where things are, and which cores there are."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build" / "release"
BIN = BUILD / "benchmarks"
CPUS = sorted(os.sched_getaffinity(0))
