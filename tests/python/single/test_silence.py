"""A process that is stopped keeps its sockets: in worlds that span hosts its silence tells."""

from __future__ import annotations

import signal
import time

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
