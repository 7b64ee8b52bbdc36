"""Worlds form over real ssh; unusable hosts are reported; no secret is visible."""

from __future__ import annotations

import pathlib
import re
from typing import Any

import pytest
from bed import Bed
from jobs import REDUCE, SPREAD, WAIT, await_up, finish, python


@pytest.mark.parametrize(
    ("hosts", "env"),
    [
        ("hosta:2,hostb:2", {}),
        ("hostb:1,hostc:1", {}),
        ("hostb:2", {}),
        ("root@hostb:1,hosta:1", {}),
        ("hosta:1,hostb:1,hostc:1", {"HOROVOD_TLS": "1"}),
    ],
)
def test_a_world_forms_over_ssh(launch: Any, hosts: str, env: dict[str, str]) -> None:
    size = sum(int(host.rpartition(":")[2]) for host in hosts.split(","))
    out, err = finish(launch("-np", str(size), "-H", hosts, *python(REDUCE), env=env), 0)
    names = [host.rpartition(":")[0].rpartition("@")[2] for host in hosts.split(",") for _ in range(int(host[-1]))]
    expected = [f"[{rank}]<stdout>:reduced {rank} of {size} on {name}" for rank, name in enumerate(names)]
    assert sorted(out.splitlines()) == expected, err


def test_interfaces_can_be_chosen(launch: Any, bed: Bed) -> None:
    code = "import os; print(os.environ['HOROVOD_GLOO_RENDEZVOUS_ADDR'], os.environ['NCCL_SOCKET_IFNAME'])"
    command = ["-np", "2", "-H", "hosta:1,hostb:1", "--network-interfaces", "eth0,ib0"]
    out, _ = finish(launch(*command, *python(code)), 0)
    addresses = ",".join(bed["hosta"].nics[0].addresses)
    assert sorted(out.splitlines()) == [f"[{rank}]<stdout>:{addresses} eth0,ib0" for rank in (0, 1)]
    finish(launch(*command, *python(REDUCE)), 0)


def test_hosts_that_are_down_and_names_that_are_unknown(launch: Any, bed: Bed) -> None:
    bed["hostc"].stop_sshd()
    try:
        _, err = finish(launch("-np", "3", "-H", "hosta:1,hostc:1,nosuchhost:1", "true"), 1)
    finally:
        bed["hostc"].start_sshd()
    assert "horovodrun: 2 of 3 hosts cannot be used, so nothing was started:\n" in err
    assert re.search(r"    hostc {7}connect to host hostc port 22: Connection refused\n {16}try: ssh hostc true\n", err)
    assert "nosuchhost  Could not resolve hostname" in err


def test_the_key_is_in_no_command_line_log_or_foreign_environment(launch: Any, bed: Bed) -> None:
    process = launch(*SPREAD, "--verbose", "--log-level", "TRACE", "--tls", *python(WAIT))
    await_up(process, 4)
    pids = [pid for machine in bed for pid in machine.pids()]
    secrets_ = set()
    workers = [pid for pid in pids if pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().endswith(WAIT.encode() + b"\0")]
    workers = [pid for pid in workers if b"\0HOROVOD_RANK=" in pathlib.Path(f"/proc/{pid}/environ").read_bytes()]
    assert len(workers) == 4
    for pid in workers:
        for variable in pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            if variable.startswith((b"_HOROVOD_SECRET_KEY=", b"_HOROVOD_TLS_IDENTITY=")):
                secrets_.add(variable.partition(b"=")[2])
    assert len(secrets_) == 2
    for pid in pids:
        for name in ("cmdline", "environ"):
            text = pathlib.Path(f"/proc/{pid}/{name}").read_bytes()
            assert (name == "environ" and pid in workers) or not any(secret in text for secret in secrets_)
    process.terminate()
    out, err = finish(process, 143)
    assert not any(secret.decode() in out + err for secret in secrets_)
