"""Where the caller of horovod.run listens, and how workers find it."""

from __future__ import annotations

import os
from typing import Any

import pytest

import horovod
from horovod.runner import _HorovodArgs
from horovod.runner.common.util import network
from horovod.runner.function import reach
from horovod.runner.function.call import call

LOCAL = (["127.0.0.1"], ["127.0.0.1"])


def addresses(**wanted: Any) -> tuple[list[str], list[str]]:
    options = _HorovodArgs()
    for name, value in wanted.items():
        setattr(options, name, value)
    return reach.addresses(options)


@pytest.fixture(autouse=True)
def no_scheduler(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*reach.SCHEDULERS, "HOROVOD_GLOO_IFACE", "HOROVOD_NETWORK_INTERFACES", "HOROVOD_TLS"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    "hosts",
    [None, "localhost:2", "localhost", "localhost:1,127.0.0.1:2", "me@127.0.0.1:2", "[::1]:2", os.uname().nodename],
)
def test_jobs_of_this_machine_stay_on_it(hosts: str | None) -> None:
    assert addresses(hosts=hosts) == LOCAL


@pytest.mark.parametrize(
    "options",
    [
        {"hosts": "localhost:1,203.0.113.7:1"},
        {"hosts": "no.such.host.invalid:1"},
        {"hosts": "[2001:db8::7]:1"},
        {"hostfile": "file"},
        {"host_discovery_script": "script"},
    ],
)
def test_jobs_on_other_hosts_are_reachable(options: dict[str, str]) -> None:
    listen, publish = addresses(**options)
    assert listen == []  # all interfaces
    assert publish == (network.outside_addresses() or ["127.0.0.1"])


def test_allocation_of_a_scheduler_may_have_other_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    assert addresses()[0] == []


def test_interfaces(monkeypatch: pytest.MonkeyPatch) -> None:
    own = network.outside_addresses(["lo"])
    assert addresses(hosts="203.0.113.7:1", nics={"lo"}) == (own, own)
    monkeypatch.setenv("HOROVOD_GLOO_IFACE", "lo")
    assert addresses(hosts="203.0.113.7:1") == (own, own)
    with pytest.raises(network.NoValidAddressesFound, match="nic7"):
        addresses(nics={"nic7"})


def test_run_over_an_interface() -> None:
    assert horovod.run(lambda: 1, num_proc=2, network_interfaces="lo") == [1, 1]


def test_run_over_all_interfaces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reach, "_all_local", lambda options: False)
    assert horovod.run(lambda: 1, num_proc=2) == [1, 1]


def test_worker_tries_every_address() -> None:
    """Nothing listens at the first; the second does not resolve."""
    arguments = ["-np", "2"]
    publish = ["127.0.0.9", "no.such.host.invalid", "127.0.0.1"]
    assert call(lambda: 1, arguments, 2, executable=None, listen=["127.0.0.1"], publish=publish) == [1, 1]


def test_worker_that_cannot_reach_the_caller_says_what_it_tried() -> None:
    with pytest.raises(RuntimeError) as caught:
        call(int, ["-np", "1"], 1, executable=None, listen=["127.0.0.1"], publish=["127.0.0.8", "127.0.0.9"])
    assert "127.0.0.8:" in str(caught.value)
    assert "127.0.0.9:" in str(caught.value)
    assert "connection refused" in str(caught.value)
