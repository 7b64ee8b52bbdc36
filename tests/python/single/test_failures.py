"""What the other ranks see when one dies, leaves or shuts down, and what stays behind."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ranks import Ended, Ranks, failure, run_ranks, say

import horovod.numpy as hvd


def wait_in_allreduce() -> None:
    hvd.init()
    hvd.allreduce(np.ones(10), name="together")
    if hvd.rank() == 1:
        say("here")
        while True:
            signal.pause()
    handle = hvd.allreduce_async(np.ones(10), name="pending")
    say("waiting")
    say("sync: " + failure(lambda: hvd.allreduce(np.ones(10), name="waited for")))
    say("async: " + failure(lambda: hvd.synchronize(handle)))
    say("later: " + failure(lambda: hvd.allgather(np.ones(10), name="later")))
    say(f"initialized: {hvd.is_initialized()} {hvd.rank()} {hvd.size()}")


def assert_survived(ended: Ended, rank: int, size: int, lost_pid: int) -> None:
    assert ended.code == 0, ended.errors
    for line in ended.lines[1:4]:
        assert "HorovodInternalError" in line, line
        assert "rank 1" in line and str(lost_pid) in line and "host" in line, line
    assert ended.lines[4] == f"initialized: True {rank} {size}"


@pytest.mark.parametrize("hosts", [[2], [4], [1, 1], [2, 2], [1, 1, 2]], ids=str)
def test_a_killed_rank_fails_what_the_others_wait_for(hosts: list[int]) -> None:
    size = sum(hosts)
    with Ranks(hosts, wait_in_allreduce) as ranks:
        for rank in range(size):
            ranks.wait_for_line(rank, "here" if rank == 1 else "waiting")
        killed = time.monotonic()
        ranks.send(1, signal.SIGKILL)
        ended = ranks.wait()
        assert time.monotonic() - killed < 10
        assert ended[1].code == -signal.SIGKILL
        for rank in set(range(size)) - {1}:
            assert_survived(ended[rank], rank, size, ranks.processes[1].pid)


def test_nothing_is_left_behind_after_a_kill() -> None:
    def files() -> set[Path]:
        return {
            *Path("/dev/shm").iterdir(),
            *(each for each in Path("/tmp").iterdir() if "horovod" in each.name.lower()),
        }

    before = files()
    with Ranks(3, wait_in_allreduce) as ranks:
        for rank in range(3):
            ranks.wait_for_line(rank, "here" if rank == 1 else "waiting")
        for rank in range(3):
            ranks.send(rank, signal.SIGKILL)
        ranks.wait()
    deadline = time.monotonic() + 60
    while not files() <= before:  # neighbours have files too, but theirs go away
        assert time.monotonic() < deadline, files() - before
        time.sleep(0.1)


def leave_without_shutdown() -> None:
    hvd.init()
    if hvd.rank() == 1:
        hvd.allreduce(np.ones(10), name="together")
        os._exit(3)
    say(os.getpid())
    hvd.allreduce(np.ones(10), name="together")
    say("sync: " + failure(lambda: hvd.allreduce(np.ones(10), name="alone")))
    say("later: " + failure(lambda: hvd.allreduce(np.ones(10), name="later")))
    hvd.shutdown()


def test_a_rank_that_exits_without_shutdown_is_lost_too() -> None:
    with Ranks(3, leave_without_shutdown) as ranks:
        ended = ranks.wait()
        assert [each.code for each in ended] == [0, 3, 0]
        for survivor in (ended[0], ended[2]):
            for line in survivor.lines[1:]:
                assert "HorovodInternalError" in line and "rank 1" in line, line
                assert str(ranks.processes[1].pid) in line, line


def exit_with_pending_operations() -> None:
    hvd.init()
    try:
        for i in range(50):
            hvd.allreduce_async(np.ones(1000), name=f"pending.{i}")
            if hvd.rank() == 0:
                hvd.allgather_async(np.ones((10, 10)), name=f"never.{i}")
    except hvd.HorovodInternalError as error:
        assert "shut down" in str(error)  # another rank was faster  # noqa: PT017
    sys.exit(5)


def test_exit_with_pending_operations_ends() -> None:
    with Ranks(3, exit_with_pending_operations) as ranks:
        assert [each.code for each in ranks.wait()] == [5, 5, 5]


def one_shuts_down() -> None:
    hvd.init()
    hvd.allreduce(np.ones(3), name="together")
    if hvd.rank() == 1:
        hvd.shutdown()
        say(f"initialized: {hvd.is_initialized()}")
        return
    say("pending: " + failure(lambda: hvd.allreduce(np.ones(3), name="pending")))
    say("later: " + failure(lambda: hvd.allreduce(np.ones(3), name="later")))
    say(f"initialized: {hvd.is_initialized()} {hvd.rank()} {hvd.size()}")
    hvd.shutdown()
    say(f"initialized: {hvd.is_initialized()}")


def test_a_shutdown_ends_operations_on_all_ranks() -> None:
    ended = run_ranks(3, one_shuts_down)
    assert ended[1].lines == ["initialized: False"]
    for rank in (0, 2):
        pending, later, *state = ended[rank].lines
        for line in (pending, later):
            assert "HorovodInternalError" in line and "shut down" in line, line
        assert state == [f"initialized: True {rank} 3", "initialized: False"]


def form_again() -> None:
    for _ in range(10):
        hvd.init()
        assert hvd.allreduce(np.array(1.0), op=hvd.Sum) == hvd.size()
        hvd.shutdown()
    say("done")


def test_a_world_can_be_formed_again_without_a_barrier_between() -> None:
    """A rank may be in the next world's init while another has not left the one before."""
    assert all(each.lines == ["done"] for each in run_ranks(3, form_again))


def interrupted_by_signal() -> None:
    hvd.init()
    if hvd.rank() == 1:
        say("here")
        say("sync: " + failure(lambda: hvd.allreduce(np.ones(3), name="other")))
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background inherits that it is ignored
    try:
        say("waiting")
        hvd.allreduce(np.ones(3), name="waited for")
    except KeyboardInterrupt:
        say("interrupted")
        sys.exit(7)


@pytest.mark.parametrize(
    ("number", "code", "told"),
    [(signal.SIGINT, 7, "shut down by rank 0"), (signal.SIGTERM, -signal.SIGTERM, "is gone")],
    ids=["SIGINT", "SIGTERM"],
)
def test_a_signal_ends_a_wait_promptly(number: signal.Signals, code: int, told: str) -> None:
    with Ranks(2, interrupted_by_signal) as ranks:
        for rank in range(2):
            ranks.wait_for_line(rank, "here" if rank == 1 else "waiting")
        sent = time.monotonic()
        ranks.send(0, number)
        assert ranks.processes[0].wait(10) == code
        assert time.monotonic() - sent < 5
        ended = ranks.wait()
        assert "HorovodInternalError" in ended[1].lines[1] and told in ended[1].lines[1], ended[1].lines


def interrupted_while_in_flight(path: str, framework: str, exception: str) -> None:
    """Large arrays are memory maps of their own: what the engine writes after they were freed ends the process."""
    count = 16 << 20

    def run() -> None:
        if framework == "numpy":
            hvd.allreduce(np.ones(count, np.float32), name="large")
            return
        import tensorflow as tf

        import horovod.tensorflow as hvd_tf

        hvd_tf.allreduce(tf.ones([count]), name="large")

    def interrupt(_number: int, frame: Any) -> None:
        while frame is not None:
            if frame.f_code.co_name in ("wait", "_finished") and "code" in frame.f_locals:  # it is in flight
                raise {"KeyboardInterrupt": KeyboardInterrupt, "TimeoutError": TimeoutError}[exception]
            frame = frame.f_back

    hvd.init()
    if hvd.rank() == 0:
        signal.signal(signal.SIGALRM, interrupt)
        signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)
        try:
            run()
        except (KeyboardInterrupt, TimeoutError) as error:
            signal.setitimer(signal.ITIMER_REAL, 0)
            say(type(error).__name__)
        open(path, "w").close()
    else:
        while not os.path.exists(path):
            time.sleep(0.01)
        run()
    hvd.allreduce(np.ones(1), name="after")
    say("alive")


@pytest.mark.parametrize("exception", ["KeyboardInterrupt", "TimeoutError"])
def test_memory_stays_when_an_exception_interrupts_a_wait(tmp_path: Path, exception: str) -> None:
    """Ctrl-C, or what a handler of the script's own raises."""
    ended = run_ranks(2, interrupted_while_in_flight, str(tmp_path / "go"), "numpy", exception)
    assert [each.code for each in ended] == [0, 0], ended
    assert ended[0].lines == [exception, "alive"], ended


def test_memory_stays_when_the_operations_in_python_are_interrupted(tmp_path: Path) -> None:
    pytest.importorskip("tensorflow")
    env = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "", "HOROVOD_TENSORFLOW_FALLBACK": "1"}
    arguments = (str(tmp_path / "go"), "tensorflow", "KeyboardInterrupt")
    ended = run_ranks(2, interrupted_while_in_flight, *arguments, env=env, limit=300)
    assert [each.code for each in ended] == [0, 0], ended
    assert ended[0].lines == ["KeyboardInterrupt", "alive"], ended


def no_memory_after_join() -> None:
    import resource

    hvd.init()
    if hvd.rank() == 1:
        with open("/proc/self/statm") as pages:
            in_use = int(pages.read().split()[0]) * os.sysconf("SC_PAGESIZE")
        resource.setrlimit(resource.RLIMIT_AS, (in_use + (32 << 20), resource.RLIM_INFINITY))
        say(failure(hvd.join))
    else:
        say(failure(lambda: hvd.allreduce(np.ones(32 << 20, np.float32), name="large")))


def test_a_joined_rank_without_memory_fails_the_operation_on_all() -> None:
    for each in run_ranks(2, no_memory_after_join):
        assert "HorovodInternalError" in each.output and "cannot allocate 134217728 bytes" in each.output


def wait_in_threads() -> None:
    hvd.init()
    if hvd.rank() == 1:
        hvd.allreduce(np.ones(2), name="together")
        os.kill(os.getpid(), signal.SIGKILL)
    failures: list[str] = []

    def wait(i: int) -> None:
        failures.append(failure(lambda: hvd.allreduce(np.ones(2), name=f"thread.{i}")))

    threads = [threading.Thread(target=wait, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    hvd.allreduce(np.ones(2), name="together")
    for thread in threads:
        thread.join()
    assert len(failures) == 6 and all("HorovodInternalError" in text and "rank 1" in text for text in failures), (
        failures
    )
    say("all failed")


def test_every_waiting_thread_is_woken() -> None:
    with Ranks(2, wait_in_threads) as ranks:
        ended = ranks.wait()
        assert ended[0].lines == ["all failed"], ended[0].errors
