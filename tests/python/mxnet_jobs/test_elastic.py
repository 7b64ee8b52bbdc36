"""An elastic job continues after a worker was killed, from the last commit, and ends with the same parameters."""

from __future__ import annotations

import re
from pathlib import Path


def test_killed_worker(job, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    worker = Path(__file__).with_name("elastic_worker.py")
    undisturbed, disturbed = tmp_path / "exists", tmp_path / "killed"
    undisturbed.touch()
    ends = []
    for marker in (undisturbed, disturbed):
        options = ["-np", "2", "--min-np", "1", "--max-np", "2", "-H", "localhost:2"]
        ended = job(options, worker, str(marker))
        assert ended.returncode == 0, ended.stdout + ended.stderr
        ends.append(set(re.findall(r"step 12, size \d, updates 12, sum (\S+)", ended.stdout)))
        assert len(ends[-1]) == 1, ended.stdout + ended.stderr
    assert disturbed.exists()
    assert ends[0] == ends[1]  # every rank has the same data, so the number of ranks does not matter
