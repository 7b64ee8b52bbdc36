"""Worlds that form on hosts of every kind, those that cannot, and a link that is merely slow."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from bed import Bed, Host
from fleet import Gate, start_ranks
from ranks import failure, say

import horovod.numpy as hvd

START_TIMEOUT = 5  # the ranks begin together, and have to reach the store in it


def try_to_form(gate: str) -> None:
    import fcntl

    def count() -> tuple[int, int]:
        return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))

    say("up")
    with open(gate) as file:
        fcntl.flock(file, fcntl.LOCK_SH)
    before = count()
    say(failure(hvd.init))
    if hvd.is_initialized():
        say(hvd.allreduce(np.array(hvd.rank()), op=hvd.Sum))
        hvd.shutdown()
    elif os.environ["HOROVOD_RANK"] != "0":  # which keeps the store
        end = time.monotonic() + 20
        while (after := count())[1] > before[1] and time.monotonic() < end:
            time.sleep(0.01)  # a thread that has ended is listed until the kernel is done with it
        say(f"left: {after[0] - before[0]} {after[1] - before[1]}")


@pytest.mark.parametrize(
    "hosts",
    [{"hosta": 1, "hostc": 1}, {"hostc": 1, "hosta": 2}, {"hostb": 1, "hosta": 1, "hostc": 2}],
    ids=lambda hosts: " ".join(f"{host}:{count}" for host, count in hosts.items()),
)
def test_hosts_with_different_nics_and_address_families_find_each_other(
    bed: Bed, hosts: dict[str, int], tmp_path: Path
) -> None:
    """Whichever comes first: hostc has no IPv4, hostb two NICs, and all an address that leads nowhere (docker0)."""
    size = sum(hosts.values())
    (tmp_path / "gate").touch()
    with start_ranks(bed, hosts, try_to_form, str(tmp_path / "gate")) as ranks:
        assert [each.lines for each in ranks.wait()] == [["up", "no error", str(size * (size - 1) // 2)]] * size


def test_a_second_network_is_used_when_the_first_is_down(make_bed: Callable[..., Bed], tmp_path: Path) -> None:
    bed = make_bed(Host("hosta", nics=["eth0", "eth1"]), Host("hostb", nics=["ib0", "ib1"]))
    bed["hostb"].cut("ib0")
    (tmp_path / "gate").touch()
    address = {"HOROVOD_GLOO_RENDEZVOUS_ADDR": bed["hosta"].nics[1].addresses[0]}
    with start_ranks(
        bed, {"hosta": 1, "hostb": 2}, try_to_form, str(tmp_path / "gate"), env_of=lambda _rank: address
    ) as ranks:
        assert [each.lines for each in ranks.wait()] == [["up", "no error", "3"]] * 3


def form_apart(bed: Bed, one: str, other: str, directory: Path) -> list[str]:
    """The error of each rank."""
    hosts, limit = {"hosta": 1, "hostb": 2, "hostc": 1}, {"HOROVOD_START_TIMEOUT": str(START_TIMEOUT)}
    gate = Gate(directory / "gate")
    bed.partition(one, other)
    try:
        with start_ranks(bed, hosts, try_to_form, gate.path, env=limit) as ranks:
            for rank in range(4):
                ranks.wait_for_line(rank, "up")
            began = time.monotonic()
            gate.open()
            ended = ranks.wait()
            assert time.monotonic() - began < START_TIMEOUT + 20
    finally:
        bed.heal(one, other)
    for rank, each in enumerate(ended):
        assert each.lines[1].startswith("HorovodInternalError"), each.lines
        assert each.lines[2:] == ([] if rank == 0 else ["left: 0 0"]), each.lines
    return [each.lines[1] for each in ended]


def test_a_host_that_cannot_reach_the_rendezvous_lists_the_addresses_it_tried(bed: Bed, tmp_path: Path) -> None:
    told = form_apart(bed, "hosta", "hostb", tmp_path)
    for rank in (1, 2):
        for address in bed["hosta"].addresses:
            assert address in told[rank]
    for rank in (0, 3):
        assert "never connected: 1, 2" in told[rank]


def test_hosts_that_cannot_reach_each_other_list_the_addresses_they_tried_on_all_ranks(
    bed: Bed, tmp_path: Path
) -> None:
    for text in form_apart(bed, "hostb", "hostc", tmp_path):
        assert "hostb" in text and "hostc" in text
        assert all(address in text for address in bed["hostc"].addresses) or all(
            address in text for address in bed["hostb"].addresses
        )


def reduce_one_large() -> None:
    hvd.init()
    result = hvd.allreduce(np.arange(1 << 17, dtype=np.float32), op=hvd.Sum)
    assert result[-1] == ((1 << 17) - 1) * hvd.size()
    say("reduced")
    hvd.shutdown()


def test_a_slow_link_is_no_failure(bed: Bed) -> None:
    """The tensor takes 4 s each way, in which hardly anything else gets through, and silence is 2 s."""
    bed["hostb"].limit("1mbit")
    try:
        env = {"HOROVOD_SILENCE_SECONDS": "2", "HOROVOD_HEARTBEAT_SECONDS": "0.4"}
        with start_ranks(bed, {"hosta": 1, "hostb": 1}, reduce_one_large, env=env) as ranks:
            assert [each.lines for each in ranks.wait()] == [["reduced"]] * 2
    finally:
        bed["hostb"].limit(None)
