"""Hosts that are reached without stdin, as by `kubectl exec` without -i: here by `ssh -n`, which goes on without its
client as a pod does."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys
from typing import Any

import pytest
from bed import Bed
from jobs import (
    DEADLINE,
    QUICK,
    REDUCE,
    SILENT,
    SPREAD,
    STUBBORN,
    WAIT,
    agent_of,
    assert_nothing_left,
    await_up,
    finish,
    kill_together,
    of_command,
    python,
)

KUBEXEC = '#!/bin/sh\nset -x\nPOD=$1\nshift\nexec ssh -n "$POD" "$*"\n'


@pytest.fixture
def kube(tmp_path: pathlib.Path) -> dict[str, str]:
    """The environment of a launcher that has a kubexec.sh."""
    script = tmp_path / "kubexec.sh"
    script.write_text(KUBEXEC)
    script.chmod(0o755)
    return {"OMPI_MCA_plm_rsh_agent": str(script)}


@pytest.mark.parametrize("tls", [{}, {"HOROVOD_TLS": "1"}], ids=["plain", "tls"])
@pytest.mark.parametrize("hosts", ["hosta:1,hostb:2,hostc:1", "hostb:2", "hostb:1,hostc:1"])
def test_a_world_forms(launch: Any, kube: dict[str, str], hosts: str, tls: dict[str, str]) -> None:
    size = sum(int(host[-1]) for host in hosts.split(","))
    out, err = finish(launch("-np", str(size), "-H", hosts, *python(REDUCE), env=kube | tls), 0)
    names = [host[:-2] for host in hosts.split(",") for _ in range(int(host[-1]))]
    expected = [f"[{rank}]<stdout>:reduced {rank} of {size} on {name}" for rank, name in enumerate(names)]
    assert sorted(out.splitlines()) == expected, err


def test_interfaces_can_be_chosen(launch: Any, bed: Bed, kube: dict[str, str]) -> None:
    process = launch("-np", "1", "-H", "hostb:1", "--network-interfaces", "eth0,ib0", *python(WAIT), env=kube)
    await_up(process, 1)
    agent = pathlib.Path(f"/proc/{of_command(bed['hostb'], b'--agent')[-1]}/cmdline").read_bytes()
    assert agent.split(b"\0")[-2].decode().split(",")[3:] == list(bed["hosta"].nics[0].addresses)
    process.terminate()
    finish(process, 143)


def test_the_doctor(bed: Bed, horovodrun: str, kube: dict[str, str]) -> None:
    env = os.environ | kube | {"PATH": f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"}
    command = [horovodrun, "--doctor", "--json", "-H", "hosta,hostb,hostc"]
    result = bed["hosta"].run(command, capture_output=True, timeout=DEADLINE, stdin=subprocess.DEVNULL, env=env)
    found = {finding["check"]: finding["severity"] for finding in json.loads(result.stdout)["findings"]}
    assert [found[check] for check in ("contact", "launcher", "allreduce")] == ["ok"] * 3, result.stdout
    assert_nothing_left(*bed)


def test_a_launcher_out_of_reach_is_told(launch: Any, kube: dict[str, str]) -> None:
    """docker0 has the same address on every host, so it does not lead here."""
    command = ["-np", "2", "-H", "hostb:1,hostc:1", "--start-timeout", "10", "--network-interfaces", "docker0", "true"]
    _, err = finish(launch(*command, env=kube), 1)
    for host in ("hostb", "hostc"):
        assert f"    {host}  its agent is running, but did not reach this machine within 10 s (--start-timeout)" in err


@pytest.mark.parametrize("code", [WAIT, STUBBORN], ids=["plain", "stubborn"])
def test_a_killed_launcher_leaves_nothing(launch: Any, bed: Bed, kube: dict[str, str], code: str) -> None:
    """The agents get no message: they notice it themselves."""
    process = launch("-np", "3", "-H", "hostb:2,hostc:1", *python(code), env=kube)
    await_up(process, 3)
    kill_together(of_command(bed["hosta"], b"\0-np\0"))  # the launcher and its guard
    process.wait()
    assert_nothing_left(*bed)


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_job(launch: Any, bed: Bed, kube: dict[str, str], stop: signal.Signals) -> None:
    process = launch(*SPREAD, *python(WAIT), env=kube)
    await_up(process, 4)
    process.send_signal(stop)
    _, err = finish(process, 128 + stop)
    assert f"got {stop.name}, stopping 4 ranks" in err
    assert_nothing_left(*bed)


def test_a_killed_agent_is_a_lost_host(launch: Any, bed: Bed, kube: dict[str, str]) -> None:
    process = launch(*SPREAD, *python(STUBBORN), env=kube)
    await_up(process, 4)
    os.kill(agent_of(bed["hostb"]), signal.SIGKILL)
    _, err = finish(process, 1)
    assert "horovodrun: lost host hostb: " in err
    assert_nothing_left(*bed)


@pytest.mark.parametrize("whose", ["client", "server"])
def test_a_lost_kubexec_is_no_loss(
    launch: Any, bed: Bed, kube: dict[str, str], whose: str, tmp_path: pathlib.Path
) -> None:
    """What is said between launcher and agent does not go that way."""
    os.mkfifo(tmp_path / "go")
    code = f"print('up', flush=True); open({str(tmp_path / 'go')!r}).read(); print('done')"
    process = launch("-np", "1", "-H", "hostb:1", *python(code), env=kube)
    await_up(process, 1)
    where = (bed["hosta"], b"ssh\0-n\0") if whose == "client" else (bed["hostb"], b"sshd: root@notty")
    victims = of_command(*where)
    assert victims
    for pid in victims:
        os.kill(pid, signal.SIGKILL)
    (tmp_path / "go").write_text("go")
    out, _ = finish(process, 0)
    assert out == "[0]<stdout>:done\n"
    assert_nothing_left(*bed)


def test_a_frozen_host_is_lost_and_cleans_up_when_it_thaws(launch: Any, bed: Bed, kube: dict[str, str]) -> None:
    process = launch(*SPREAD, *python(STUBBORN), env=kube | QUICK)
    await_up(process, 4)
    bed["hostb"].freeze()
    try:
        _, err = finish(process, 1)
        assert f"horovodrun: lost host hostb: {SILENT}" in err
        assert_nothing_left(bed["hosta"], bed["hostc"])
    finally:
        bed["hostb"].thaw()
    assert_nothing_left(*bed)


def test_nothing_secret_is_where_others_can_read_it(launch: Any, bed: Bed, kube: dict[str, str]) -> None:
    process = launch(*SPREAD, "--verbose", "--log-level", "TRACE", "--tls", *python(WAIT), env=kube)
    await_up(process, 4)
    pids = [pid for machine in bed for pid in machine.pids()]
    environments = {pid: pathlib.Path(f"/proc/{pid}/environ").read_bytes() for pid in pids}
    workers = [pid for pid in pids if b"\0HOROVOD_RANK=" in environments[pid]]
    names = (b"_HOROVOD_SECRET_KEY=", b"_HOROVOD_TLS_IDENTITY=")
    secrets = {each.partition(b"=")[2] for each in environments[workers[0]].split(b"\0") if each.startswith(names)}
    assert (len(workers), len(secrets)) == (4, 2)
    for pid in pids:
        text = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes() + (b"" if pid in workers else environments[pid])
        assert not any(secret in text for secret in secrets)
    process.terminate()
    out, err = finish(process, 143)
    assert not any(secret.decode() in out + err for secret in secrets)
