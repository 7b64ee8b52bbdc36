"""A process that is stopped keeps its sockets: in worlds that span hosts its silence is detected."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest
from ranks import Ranks, failure, say

import horovod.numpy as hvd


def train(stopped: int, large: int) -> None:
    hvd.init()
    step = 0
    while step < 3 or hvd.rank() != stopped:
        problem = failure(lambda: hvd.allreduce(np.ones(large), name="step"))
        if problem != "no error":
            say(problem)
            return
        step += 1
        if step == 3:
            say("training")
    say("training")
    signal.pause()


@pytest.mark.parametrize("stopped", range(4), ids=["root", "beside the root", "leader", "beside a leader"])
def test_a_stopped_rank_is_lost_for_all_others(stopped: int) -> None:
    with Ranks([2, 2], train, stopped, 10, env={"HOROVOD_SILENCE_SECONDS": "6"}) as ranks:
        for rank in range(4):
            ranks.wait_for_line(rank, "training")
        ranks.send(stopped, signal.SIGSTOP)
        began = time.monotonic()
        for rank in set(range(4)) - {stopped}:
            ranks.wait_for_line(rank, f"rank {stopped} ")
        assert time.monotonic() - began < 20
        ranks.send(stopped, signal.SIGKILL)
        for rank, ended in enumerate(ranks.wait()):
            if rank != stopped:
                assert "HorovodInternalError" in ended.output and "silent" in ended.output, ended.output


def use_a_pair_late(start: str, pair_starts: str) -> None:
    """Ranks 0 and 3 of six hosts exchange nothing in the usual algorithms; here they do for the first time."""
    say("imported")
    with open(start):  # all start together, however long their imports took
        pass
    hvd.init()
    pair = hvd.add_process_set([0, 3])
    hvd.allreduce(np.ones(3), name="all")
    if hvd.rank() == 3:
        handle = hvd.allreduce_async(np.ones(3), op=hvd.Sum, name="pair", process_set=pair)
    hvd.allreduce(np.ones(3), name="after that")  # the root knows now what rank 3 has submitted
    say("submitted")
    if hvd.rank() == 3:
        say(f"sum {hvd.synchronize(handle)[0]}")
    if hvd.rank() == 0:
        with open(pair_starts):
            pass
        say("sum " + failure(lambda: hvd.allreduce(np.ones(3), op=hvd.Sum, name="pair", process_set=pair)))
    hvd.barrier()  # a rank that ends earlier shuts down


def test_a_pair_is_connected_although_one_is_stopped_for_longer_than_the_start_may_take(tmp_path: Path) -> None:
    start, pair_starts, limit = tmp_path / "start", tmp_path / "pair", 4
    os.mkfifo(start)
    os.mkfifo(pair_starts)
    knobs = {
        "HOROVOD_START_TIMEOUT": str(limit),
        "HOROVOD_SILENCE_SECONDS": "100",
        "HOROVOD_DYNAMIC_PROCESS_SETS": "1",
    }
    with Ranks([1] * 6, use_a_pair_late, str(start), str(pair_starts), env=knobs) as ranks:
        for rank in range(6):
            ranks.wait_for_line(rank, "imported")
        with start.open("w"):
            for rank in range(6):
                ranks.wait_for_line(rank, "submitted")
        ranks.send(3, signal.SIGSTOP)
        with pair_starts.open("w"), pytest.raises(AssertionError):
            ranks.wait_for_line(0, "sum", limit + 1.5)  # an answer would be an error
        ranks.send(3, signal.SIGCONT)
        ranks.wait_for_line(3, "sum 2.0")
        ranks.wait_for_line(0, "sum no error")
        assert all(ended.code == 0 for ended in ranks.wait())
