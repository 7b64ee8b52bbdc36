"""Worlds that form on hosts of every kind, those that cannot, and a link that is merely slow."""

from __future__ import annotations

import time

import numpy as np
import pytest
from bed import Bed
from fleet import start_ranks
from ranks import failure, say

import horovod.numpy as hvd

START_TIMEOUT = 3


def try_to_form() -> None:
    import os

    before = len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))
    say(failure(hvd.init))
    after = len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))
    if hvd.is_initialized():
        say(hvd.allreduce(np.array(hvd.rank()), op=hvd.Sum))
        hvd.shutdown()
    elif os.environ["HOROVOD_RANK"] != "0":  # which keeps the store
        say(f"left: {after[0] - before[0]} {after[1] - before[1]}")


@pytest.mark.parametrize(
    "hosts",
    [{"hosta": 1, "hostc": 1}, {"hostc": 1, "hosta": 2}, {"hostb": 1, "hosta": 1, "hostc": 2}],
    ids=lambda hosts: " ".join(f"{host}:{count}" for host, count in hosts.items()),
)
def test_hosts_with_different_nics_and_address_families_find_each_other(bed: Bed, hosts: dict[str, int]) -> None:
    """Whichever comes first: hostc has no IPv4, hostb two NICs, and all an address that leads nowhere (docker0)."""
    size = sum(hosts.values())
    with start_ranks(bed, hosts, try_to_form) as ranks:
        assert [each.lines for each in ranks.wait()] == [["no error", str(size * (size - 1) // 2)]] * size


def form_apart(bed: Bed, one: str, other: str) -> list[list[str]]:
    bed.partition(one, other)
    began = time.monotonic()
    try:
        with start_ranks(
            bed,
            {"hosta": 1, "hostb": 2, "hostc": 1},
            try_to_form,
            env={"HOROVOD_START_TIMEOUT": str(START_TIMEOUT)},
        ) as ranks:
            ended = ranks.wait()
    finally:
        bed.heal(one, other)
    assert time.monotonic() - began < START_TIMEOUT + 25
    for each in ended:
        assert each.lines[0].startswith("HorovodInternalError"), each.lines
        assert each.lines[1:] in ([], ["left: 0 0"]), each.lines
    return [each.lines for each in ended]


def test_a_host_that_cannot_reach_the_rendezvous_lists_the_addresses_it_tried(bed: Bed) -> None:
    lines = form_apart(bed, "hosta", "hostb")
    for rank in (1, 2):
        for address in bed["hosta"].addresses:
            assert address in lines[rank][0]
    for rank in (0, 3):
        assert "never came: 1, 2" in lines[rank][0]


def test_hosts_that_cannot_reach_each_other_list_the_addresses_they_tried_on_all_ranks(bed: Bed) -> None:
    for (text, *_) in form_apart(bed, "hostb", "hostc"):
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
