"""Operations that some ranks never submit."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import numpy as np
from ranks import Ranks, failure, run_ranks, say

import horovod.numpy as hvd


def one_comes_late(until: str) -> None:
    hvd.init()
    hvd.allreduce(np.ones(3), name="on time")
    if hvd.rank() == 1:
        if until:
            with open(until) as fifo:
                fifo.read()
        else:
            time.sleep(3)
    hvd.allreduce(np.ones(3), name="stalled.gradient")


def test_every_rank_reports_a_stall_with_its_cause(tmp_path: Path) -> None:
    fifo = tmp_path / "until"
    os.mkfifo(fifo)
    with Ranks(3, one_comes_late, str(fifo), env={"HOROVOD_STALL_CHECK_TIME_SECONDS": "1"}) as ranks:
        for rank in range(3):
            ranks.wait_for_error(rank, "allreduce.stalled.gradient")
        fifo.write_text("")
        ended = ranks.wait()
        for each in ended:
            assert each.code == 0, each.errors
            assert "allreduce.stalled.gradient" in each.errors
            assert "rank 1" in each.errors and str(ranks.processes[1].pid) in each.errors
            assert "last finished allreduce.on time" in each.errors, "what the missing rank is doing"


def test_the_report_can_be_switched_off() -> None:
    quiet = {"HOROVOD_STALL_CHECK_TIME_SECONDS": "1", "HOROVOD_STALL_CHECK_DISABLE": "1"}
    assert all("stalled.gradient" not in each.errors for each in run_ranks(2, one_comes_late, "", env=quiet))


def one_does_something_else() -> None:
    hvd.init()
    name = "other" if hvd.rank() == 1 else "gradient"
    say("failed: " + failure(lambda: hvd.allreduce(np.ones(3), name=name)))
    hvd.allreduce(np.ones(3), name="afterwards")
    say("goes on")


def test_a_time_out_makes_it_an_error_on_all_ranks() -> None:
    started = time.monotonic()
    # The limit holds for what comes afterwards, too: no rank may be later than this.
    ended = run_ranks(3, one_does_something_else, env={"HOROVOD_COLLECTIVE_TIMEOUT_SECONDS": "6"})
    assert time.monotonic() - started < 20
    for rank, each in enumerate(ended):
        assert "HorovodInternalError" in each.lines[0], each.lines
        assert ("allreduce.other" if rank == 1 else "allreduce.gradient") in each.lines[0]
        missing = ("rank 0", "rank 2") if rank == 1 else ("rank 1",)
        assert all(text in each.lines[0] for text in missing), each.lines
        assert each.lines[1] == "goes on"


def stall_until_shutdown() -> None:
    hvd.init()
    name = "other" if hvd.rank() == 1 else "gradient"
    say("failed: " + failure(lambda: hvd.allreduce(np.ones(3), name=name)))


def test_a_stall_can_shut_the_job_down() -> None:
    limits = {"HOROVOD_STALL_CHECK_TIME_SECONDS": "1", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "2"}
    for each in run_ranks(2, stall_until_shutdown, env=limits):
        assert "HorovodInternalError" in each.lines[0], each.lines


def the_root_is_stopped() -> None:
    hvd.init()
    hvd.barrier()
    if hvd.rank() == 0:
        os.kill(os.getpid(), signal.SIGSTOP)
    say("failed: " + failure(lambda: hvd.allreduce(np.ones(3), name="gradient")))


def test_a_stopped_rank_zero_is_named_by_the_others() -> None:
    limits = {"HOROVOD_STALL_CHECK_TIME_SECONDS": "1", "HOROVOD_COLLECTIVE_TIMEOUT_SECONDS": "2"}
    with Ranks(3, the_root_is_stopped, env=limits) as ranks:
        for rank in (1, 2):
            ranks.wait_for_line(rank, "failed: HorovodInternalError")
        ranks.send(0, signal.SIGCONT)
        for each in ranks.wait():
            assert each.code == 0, each.errors
            assert "rank 0" in each.output and str(ranks.processes[0].pid) in each.output
            assert "is it stopped?" in each.output


def the_root_is_late(until: str) -> None:
    hvd.init()
    if hvd.rank() == 0:
        with open(until) as fifo:
            fifo.read()
    say("failed: " + failure(lambda: hvd.allreduce(np.ones(3), name="gradient")))


def test_a_rank_zero_that_is_stopped_after_it_has_read_is_named_by_the_others(tmp_path: Path) -> None:
    fifo = tmp_path / "until"
    os.mkfifo(fifo)
    # Between the two it has to be stopped.
    limits = {"HOROVOD_STALL_CHECK_TIME_SECONDS": "1", "HOROVOD_COLLECTIVE_TIMEOUT_SECONDS": "12"}
    with Ranks(3, the_root_is_late, str(fifo), env=limits) as ranks:
        ranks.wait_for_error(0, "allreduce.gradient")  # its report: it knows what the others wait for
        ranks.send(0, signal.SIGSTOP)
        for rank in (1, 2):
            ranks.wait_for_line(rank, "failed: HorovodInternalError")
        ranks.send(0, signal.SIGCONT)
        fifo.write_text("")
        for each in ranks.wait():
            assert "rank 0" in each.output and str(ranks.processes[0].pid) in each.output
            assert "is it stopped?" in each.output
