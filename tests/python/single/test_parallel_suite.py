"""The way in which the parallel suites end when a test fails on one rank only."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from ranks import ROOT

# horovodrun stops all ranks when the first has ended: the others let rank 1 say everything before they end.
FAILS_ON_RANK_1 = """
import atexit
import fcntl
import numpy as np
import horovod.numpy as hvd

held_by_rank_1 = open(__file__)

def test_before():
    if hvd.rank() == 1:
        fcntl.flock(held_by_rank_1, fcntl.LOCK_EX)
    else:
        atexit.register(fcntl.flock, held_by_rank_1, fcntl.LOCK_SH)
    hvd.allreduce(np.ones(3), name="before")

def test_uneven():
    hvd.allreduce(np.ones(3), name="together")
    assert hvd.rank() != 1, "only here"
    hvd.allreduce(np.ones(3), name="rank 1 never comes")

def test_after():
    print("went on")
    hvd.allreduce(np.ones(3), name="after")
"""


def test_a_failure_on_one_rank_ends_the_others(tmp_path: Path) -> None:
    shutil.copy(ROOT / "tests/python/parallel/conftest.py", tmp_path)
    (tmp_path / "test_uneven.py").write_text(FAILS_ON_RANK_1)
    run = [str(ROOT / "python/horovod/bin/horovodrun"), "-np", "3", sys.executable, "-m", "pytest", "-q", "-s"]
    result = subprocess.run(
        [*run, "-p", "no:cacheprovider", str(tmp_path)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{ROOT}/python:{ROOT}/tests/python"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    everything = result.stdout + result.stderr
    assert result.returncode != 0
    assert "AssertionError: only here" in result.stdout, everything
    assert "went on" not in result.stdout, everything
    assert "Timeout" not in everything, everything  # no rank had to wait for the time limit
