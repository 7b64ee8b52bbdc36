"""What the ranks on all hosts are told when a process, a host or the network between them fails, and that they are
clean afterwards and can go on together: fleet.survive() checks descriptors, threads and a new world every time.

Limits are stated for an idle machine: a dead process is known in 1 s, silence in HOROVOD_SILENCE_SECONDS.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Collection
from pathlib import Path

import numpy as np
import pytest
from bed import Bed
from fleet import Fleet, Gate, start_ranks
from ranks import failure, say

import horovod.numpy as hvd

DEAD = 1 * 10.0  # the limit and room for a slow machine
SILENT = 2 * 6.0

MEMBER, LEADER, ROOT = 3, 2, 0  # member and leader are of hostb
ROLES = pytest.mark.parametrize("victim", [MEMBER, LEADER, ROOT], ids=["member", "leader", "root"])


def assert_named(told: dict[int, str], fleet: Fleet, victims: Collection[int], cause: str) -> None:
    """Each text names one of the victims with host and pid, and the cause."""
    names = "|".join(rf"rank {number} \({fleet.host(number)}, pid {fleet.pid(number)}\)" for number in victims)
    for number, text in told.items():
        assert re.search(names, text), f"{number} was told: {text}"
        assert re.search(cause, text), f"{number} was told: {text}"


# ---- processes


@ROLES
def test_a_killed_process(fleet: Fleet, victim: int) -> None:
    told = fleet.survive(lambda: fleet.ranks.send(victim, signal.SIGKILL), dead=[victim], within=DEAD)
    assert_named(told, fleet, [victim], "gone|lost")


@ROLES
def test_a_stopped_process(fleet: Fleet, victim: int) -> None:
    """It keeps its sockets, and the buffers of its senders fill up."""
    told = fleet.survive(
        lambda: fleet.ranks.send(victim, signal.SIGSTOP),
        lambda: fleet.ranks.send(victim, signal.SIGCONT),
        asleep=[victim],
        within=SILENT,
    )
    del told[victim]
    assert_named(told, fleet, [victim], r"silent for [2-9]")


def idle_then_reduce(gate: str) -> None:
    import fcntl

    hvd.init()
    hvd.allreduce(np.ones(3), name="first")
    say("idle")
    with open(gate) as file:
        fcntl.flock(file, fcntl.LOCK_SH)
    say(failure(lambda: hvd.allreduce(np.ones(3), name="second")))
    hvd.shutdown()


def test_a_death_while_nothing_is_to_do_is_told_by_the_next_operation(bed: Bed, tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    with start_ranks(bed, {"hosta": 2, "hostb": 2}, idle_then_reduce, gate.path) as ranks:
        for rank in range(4):
            ranks.wait_for_line(rank, "idle")
        ranks.send(MEMBER, signal.SIGKILL)
        ranks.processes[MEMBER].wait()
        gate.open()
        for rank in set(range(4)) - {MEMBER}:
            ranks.wait_for_line(rank, "HorovodInternalError: rank 3 (hostb, pid ", DEAD)
        assert [each.code for each in ranks.wait()] == [0, 0, 0, -signal.SIGKILL]


# ---- hosts


@pytest.mark.parametrize("host", ["hosta", "hostb"])
def test_a_frozen_host(fleet: Fleet, host: str) -> None:
    machine, victims = fleet.bed[host], fleet.on(host)
    told = fleet.survive(machine.freeze, machine.thaw, asleep=victims, within=SILENT)
    for victim in victims:
        del told[victim]
    assert_named(told, fleet, victims, "silent")


@pytest.mark.parametrize("host", ["hosta", "hostc"])
def test_a_crashed_host(fleet: Fleet, host: str) -> None:
    victims = fleet.on(host)
    told = fleet.survive(fleet.bed[host].crash, dead=victims, within=SILENT)
    assert_named(told, fleet, victims, "silent|timed out|acknowledged no data")


# ---- the network


def test_a_cut_cable(fleet: Fleet) -> None:
    cut_off = fleet.on("hostb")
    told = fleet.survive(fleet.bed["hostb"].cut, fleet.bed["hostb"].heal, within=SILENT)
    rest = [number for number in fleet.numbers if number not in cut_off]
    lost = r"silent|timed out|acknowledged no data|no route|unreachable"
    assert_named({number: told[number] for number in rest}, fleet, cut_off, lost)
    assert_named({number: told[number] for number in cut_off}, fleet, rest, lost)


LANES = [("hosta", "hostb"), ("hostb", "hosta"), ("hostb", "hostc"), ("hostc", "hostb")]
Break = Callable[[Bed, str, str], None]


@pytest.mark.parametrize(
    ("break_", "one", "other"),
    [(Bed.partition, *lane) for lane in LANES[::2]] + [(Bed.drop, *lane) for lane in LANES],
    ids=[f"{one}|{other}" for one, other in LANES[::2]] + [f"{one}-x->{other}" for one, other in LANES],
)
def test_two_hosts_that_lose_each_other_or_one_the_other(fleet: Fleet, break_: Break, one: str, other: str) -> None:
    """hostb and hostc exchange data, but are not neighbours in the tree of control."""
    bed = fleet.bed
    told = fleet.survive(lambda: break_(bed, one, other), lambda: bed.heal(one, other), within=2 * SILENT)
    # A rank that receives but cannot send may only get the end of a connection: messages to it are not acknowledged.
    assert_named(
        told, fleet, fleet.on(one) + fleet.on(other), "silent|timed out|acknowledged no data|closed by the peer"
    )
