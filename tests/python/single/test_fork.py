"""Forked children, such as the workers of a data loader, and their parents."""

from __future__ import annotations

import faulthandler
import os
import signal
import time

import numpy as np
from ranks import Ranks, failure, run_ranks, say

import horovod.numpy as hvd


def work_in_children() -> None:
    import multiprocessing

    hvd.init()
    with multiprocessing.get_context("fork").Pool(3) as pool:
        for i in range(20):
            pending = hvd.allreduce_async(np.full(1000, float(i)), name="gradient", op=hvd.Sum)
            assert pool.map(abs, range(-5, 0)) == [5, 4, 3, 2, 1]
            assert (hvd.synchronize(pending) == i * hvd.size()).all()
        say("children: " + failure(lambda: pool.apply(hvd.allreduce, (np.ones(2),))))
    assert hvd.allreduce(np.array(1.0), op=hvd.Sum) == hvd.size()
    hvd.barrier()
    say("done")


def test_workers_do_not_disturb_their_parent() -> None:
    for each in run_ranks(2, work_in_children):
        assert each.lines[0].startswith("children: HorovodInternalError") and each.lines[1] == "done"


def die_with_a_living_child() -> None:
    hvd.init()
    hvd.allreduce(np.ones(2), name="together")
    if hvd.rank() == 1:
        if os.fork() == 0:
            time.sleep(20)  # holds copies of all the parent's descriptors
            os._exit(0)
        os.kill(os.getpid(), signal.SIGKILL)
    started = time.monotonic()
    say(failure(lambda: hvd.allreduce(np.ones(2), name="alone")))
    assert time.monotonic() - started < 10


def test_the_death_of_a_parent_is_noticed_although_its_child_lives() -> None:
    with Ranks(3, die_with_a_living_child) as ranks:
        for rank in (0, 2):
            assert ranks.processes[rank].wait(40) == 0
            ranks.wait_for_line(rank, "HorovodInternalError")
            ranks.wait_for_line(rank, "rank 1")


def child_exits_normally() -> None:
    hvd.init()
    faulthandler.cancel_dump_traceback_later()  # at exit, a forked child would wait for its thread, which it lacks
    child = os.fork()
    if child == 0:
        raise SystemExit(4)  # runs the exit handlers, also Horovod's
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 4
    assert hvd.allreduce(np.array(1.0), op=hvd.Sum) == hvd.size()
    hvd.barrier()
    say("done")


def test_the_exit_handlers_of_a_child_do_not_shut_the_parent_down() -> None:
    assert all(each.lines == ["done"] for each in run_ranks(2, child_exits_normally))
