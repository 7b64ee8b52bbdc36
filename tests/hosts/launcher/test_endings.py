"""However a job over several hosts ends, no process is left anywhere."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from typing import Any

import pytest
from bed import Bed
from jobs import (
    DEADLINE,
    QUICK,
    SILENT,
    SPREAD,
    STUBBORN,
    WAIT,
    agent_of,
    assert_nothing_left,
    await_up,
    finish,
    of_command,
    python,
)

# The second when the ssh had not yet read all that the launcher said to it.
CLOSED = "horovodrun: lost host hostb: connection (closed by the peer|lost: Connection reset by peer)"


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_job_on_all_hosts(launch: Any, bed: Bed, stop: signal.Signals) -> None:
    process = launch(*SPREAD, *python(WAIT))
    await_up(process, 4)
    process.send_signal(stop)
    _, err = finish(process, 128 + stop)
    assert f"got {stop.name}, stopping 4 ranks" in err
    assert_nothing_left(*bed)


def test_stubborn_workers_are_killed_on_all_hosts(launch: Any, bed: Bed) -> None:
    process = launch(*SPREAD, *python(STUBBORN))
    await_up(process, 4)
    process.send_signal(signal.SIGINT)
    assert process.stderr.readline().startswith("horovodrun: got SIGINT")
    process.send_signal(signal.SIGINT)
    finish(process, 130)
    assert_nothing_left(*bed)


def test_a_closed_terminal_ends_the_job(launch: Any, bed: Bed) -> None:
    master, slave = os.openpty()
    process = launch(
        *SPREAD, *python(STUBBORN), stdin=slave, stdout=slave, stderr=slave, text=False, start_new_session=True,
        preexec_fn=lambda: __import__("fcntl").ioctl(0, __import__("termios").TIOCSCTTY, 0),
    )  # fmt: skip
    os.close(slave)
    seen = b""
    while seen.count(b"up\r\n") < 4:
        seen += os.read(master, 4096)
    os.close(master)
    process.wait(timeout=DEADLINE)
    assert_nothing_left(*bed)


@pytest.mark.parametrize("code", [WAIT, STUBBORN], ids=["plain", "stubborn"])
def test_a_killed_launcher_leaves_nothing(launch: Any, bed: Bed, code: str) -> None:
    process = launch(*SPREAD, *python(code))
    await_up(process, 4)
    process.kill()
    process.wait()
    assert_nothing_left(*bed)


@pytest.mark.parametrize("whose", ["client", "server"])
def test_a_lost_ssh_connection_is_a_lost_host(launch: Any, bed: Bed, whose: str) -> None:
    process = launch(*SPREAD, *python(STUBBORN))
    await_up(process, 4)
    if whose == "client":
        victims = of_command(bed["hosta"], b"ssh\0", b"\0hostb\0")
    else:
        victims = of_command(bed["hostb"], b"sshd: root@notty")
    assert victims
    for pid in victims:
        os.kill(pid, signal.SIGKILL)
    _, err = finish(process, 1)
    assert re.search(CLOSED, err), err
    assert_nothing_left(*bed)


def test_a_killed_agent_is_a_lost_host(launch: Any, bed: Bed) -> None:
    process = launch(*SPREAD, *python(STUBBORN))
    await_up(process, 4)
    os.kill(agent_of(bed["hostb"]), signal.SIGKILL)
    _, err = finish(process, 1)
    assert re.search(CLOSED, err), err
    assert "agent was killed by SIGKILL" in err
    assert_nothing_left(*bed)


def test_a_frozen_host_is_lost_and_cleans_up_when_it_thaws(launch: Any, bed: Bed) -> None:
    process = launch(*SPREAD, *python(STUBBORN), env=QUICK)
    await_up(process, 4)
    bed["hostb"].freeze()
    try:
        _, err = finish(process, 1)
        assert f"horovodrun: lost host hostb: {SILENT}" in err
        assert_nothing_left(bed["hosta"], bed["hostc"])
    finally:
        bed["hostb"].thaw()
    assert_nothing_left(*bed)


def test_a_host_that_is_cut_off_cleans_up_by_itself(launch: Any, bed: Bed) -> None:
    process = launch(*SPREAD, *python(STUBBORN), env=QUICK)
    await_up(process, 4)
    bed["hostb"].cut()
    try:
        _, err = finish(process, 1)
        assert f"horovodrun: lost host hostb: {SILENT}" in err
        end = time.monotonic() + DEADLINE
        while of_command(bed["hostb"], b"--agent") or of_command(bed["hostb"], b"sleep"):
            assert time.monotonic() < end
            time.sleep(0.02)
    finally:
        bed["hostb"].heal()
        for pid in of_command(bed["hostb"], b"sshd: root"):  # which waits for its lost client for long
            with contextlib.suppress(ProcessLookupError):  # it hears now that the client is gone
                os.kill(pid, signal.SIGKILL)
    assert_nothing_left(*bed)


def test_a_host_without_power_is_lost(launch: Any, bed: Bed) -> None:
    process = launch(*SPREAD, *python(STUBBORN), env=QUICK)
    await_up(process, 4)
    bed["hostc"].crash()
    try:
        _, err = finish(process, 1)
    finally:
        bed["hostc"].boot()
    assert f"horovodrun: lost host hostc: {SILENT}" in err
    assert_nothing_left(*bed)


def test_the_cause_is_the_killed_rank_and_not_those_that_noticed(launch: Any, bed: Bed) -> None:
    code = """
import os, signal
import numpy as np, horovod.numpy as hvd
hvd.init()
hvd.allreduce(np.ones(3))
if hvd.rank() == 2:
    os.kill(os.getpid(), signal.SIGKILL)
hvd.allreduce(np.ones(3))
"""
    _, err = finish(launch(*SPREAD, *python(code)), 1)
    summary = err[err.index("horovodrun: rank ") :]
    assert re.match(r"horovodrun: rank 2 on hostb failed: pid \d+, killed by SIGKILL \(exit code 137\), ", summary)
    assert "Hint: horovodrun did not send this SIGKILL" in summary
