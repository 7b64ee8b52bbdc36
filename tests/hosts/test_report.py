"""What horovodrun --report says of a job whose network is slow."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np
from bed import Bed
from fleet import start_ranks
from ranks import say

import horovod.numpy as hvd


def reduce_large_ones() -> None:
    hvd.init()
    for _ in range(6):
        hvd.allreduce(np.ones(1 << 19, np.float32), name="large")
    hvd.shutdown()
    say("reduced")


def test_a_slow_link_is_named_and_no_rank(bed: Bed, tmp_path: Path, horovodrun: str) -> None:
    """2 MiB take 0.8 s at 20 Mbit/s."""
    bed["hostb"].limit("20mbit")
    try:
        env = {"HOROVOD_TIMELINE_ALL_RANKS": "1", "HOROVOD_TIMELINE": str(tmp_path / "all.json")}
        with start_ranks(bed, {"hosta": 1, "hostb": 1}, reduce_large_ones, env=env) as ranks:
            assert [each.lines for each in ranks.wait()] == [["reduced"]] * 2
    finally:
        bed["hostb"].limit(None)
    found = json.loads(
        subprocess.run([horovodrun, "--report", tmp_path, "--json"], check=True, capture_output=True).stdout
    )
    assert found["problems"] == []
    assert found["world"]["hosts"] == ["hosta", "hostb"]
    first = found["advice"][0]
    assert first["what"] == "network", found["advice"]
    assert "between 2 hosts" in first["text"]
    assert 1e6 < found["fusion"]["bytes_per_second"] < 3.5e6
    for time in found["ranks"]:
        assert time["exposed_communication"] > 0.5 * found["steps"]["median"]
    (clock,) = found["clocks"]  # that of one machine, in truth
    assert clock["known"]
    assert abs(clock["ahead"]) <= clock["error"] + 0.01
