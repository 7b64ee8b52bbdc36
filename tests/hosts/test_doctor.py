"""horovodrun --doctor between test-bed hosts over real ssh: healthy ones, and the illnesses that need a network."""

from __future__ import annotations

import json
import os
import pathlib
import secrets
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from bed import Bed, Host, why_not

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEADLINE = 60
MACHINE = {"limits", "shm", "cpus", "memory"}  # what the machine of the test has too little of

Examine = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def bed() -> Iterator[Bed]:
    if reason := why_not():
        pytest.skip(f"no test bed: {reason}")
    hosts = [Host("hosta", nics=["eth0", "eth1"], docker0=True), Host("hostb", nics=["ib0", "ib1"], docker0=True)]
    with Bed(hosts, ssh=True) as bed:
        yield bed


@pytest.fixture
def examine(bed: Bed, horovodrun: str) -> Examine:
    def call(*arguments: str, code: int = 0, hosts: str = "hosta,hostb") -> dict[str, Any]:
        command = [horovodrun, "--doctor", "--json", *(["-H", hosts] if hosts else []), *arguments]
        # The Python that runs this test is the one that has horovod.
        env = os.environ | {"PATH": f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"}
        result = bed["hosta"].run(command, capture_output=True, timeout=DEADLINE, stdin=subprocess.DEVNULL, env=env)
        assert result.returncode == code, (result.stdout, result.stderr)
        report: dict[str, Any] = json.loads(result.stdout)
        return report

    return call


def problems(report: dict[str, Any]) -> list[tuple[str, str, list[str], str]]:
    return [
        (finding["severity"], finding["check"], finding["hosts"], finding["text"])
        for finding in report["findings"]
        if finding["severity"] != "ok" and finding["check"] not in MACHINE
    ]


def attempts(report: dict[str, Any], host: str) -> dict[str, bool]:
    """By address: whether it answered."""
    (facts,) = [one["facts"] for one in report["hosts"] if one["name"] == host]
    return {attempt["address"]["ip"]: attempt["time"] is not None for attempt in facts["attempts"]}


@pytest.mark.parametrize("options", [(), ("--tls",)], ids=["plain", "tls"])
def test_a_healthy_pair(examine: Examine, bed: Bed, options: tuple[str, ...]) -> None:
    report = examine(*options)
    assert problems(report) == []
    tried = attempts(report, "hosta")
    assert {address for address, works in tried.items() if works} >= set(bed["hostb"].addresses)
    assert tried["172.17.0.1"] is False  # every host has this bridge
    (clock,) = [one["facts"]["clock"] for one in report["hosts"] if one["name"] == "hostb"]
    assert abs(clock["seconds"]) <= clock["uncertainty"] + 0.1


def test_interfaces_that_are_named_are_the_only_ones_tried(examine: Examine, bed: Bed) -> None:
    report = examine("--network-interfaces", "eth1,ib1")
    assert problems(report) == []
    assert set(attempts(report, "hosta")) >= set(bed["hostb"].nics[1].addresses)
    assert not set(attempts(report, "hosta")) & set(bed["hostb"].nics[0].addresses)


def test_an_address_that_does_not_answer(examine: Examine, bed: Bed) -> None:
    """The second network of hostb is out of order: jobs work, and the doctor says which addresses do not."""
    bed["hostb"].cut("ib1")
    try:
        report = examine()
    finally:
        bed["hostb"].heal("ib1")
    texts = [text for severity, check, hosts, text in problems(report) if (severity, check) == ("warn", "addresses")]
    for address in bed["hostb"].nics[1].addresses:
        assert f"{address} (ib1) does not answer from hosta" in texts
    assert not any(severity == "fail" for severity, *_ in problems(report))
    advice = [one["advice"] for one in report["findings"] if one["check"] == "addresses"]
    assert all(text.endswith("--network-interfaces eth0,ib0") for text in advice), advice


def test_hosts_that_cannot_reach_each_other(examine: Examine, bed: Bed) -> None:
    """hostb lets ssh in, and nothing else."""
    chain = "type filter hook input priority 0; tcp dport != 22 ct state new drop;"
    rules = f"table inet doctor {{\nchain input {{\n{chain}\n}}\n}}\n"
    bed["hostb"].run(["nft", "-f", "-"], input=rules.encode(), check=True)
    try:
        report = examine("--start-timeout", "15", code=1)
    finally:
        bed["hostb"].run(["nft", "delete", "table", "inet", "doctor"], check=True)
    found = {(severity, check): (hosts, text) for severity, check, hosts, text in problems(report)}
    hosts, text = found["fail", "addresses"]
    assert hosts == ["hosta", "hostb"]
    assert text.startswith("hosta cannot reach hostb: ")
    assert f"{bed['hostb'].address} (ib0): no answer" in text
    assert found["warn", "allreduce"][1] == "not tried: hosta cannot reach hostb"


def test_another_version_on_one_host(
    examine: Examine, bed: Bed, horovodrun: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A horovodrun that is only where hostb has it, with a Python beside it that is another one."""
    folder = tmp_path / "bin"
    folder.mkdir()
    shutil.copy(horovodrun, folder / "horovodrun")
    python = folder / "python3"
    python.write_text('#!/bin/sh\necho \'{"python": "3.8.1", "folder": "", "version": "0.28.1"}\'\n')
    python.chmod(0o755)
    wrapper = tmp_path / "ssh-to-other"
    wrapper.write_text(f"""#!/bin/bash
from={horovodrun} to={folder}/horovodrun
exec ssh "${{@:1:$#-1}}" "${{!#/"$from"/$to}}"
""")
    wrapper.chmod(0o755)
    monkeypatch.setenv("HOROVOD_SSH_COMMAND", str(wrapper))
    report = examine(code=1)
    texts = [text for severity, check, hosts, text in problems(report) if (severity, check) == ("fail", "versions")]
    assert any(text.startswith("Python differs: ") and "3.8.1 on hostb" in text for text in texts), texts


def test_a_stopped_sshd_is_a_row(examine: Examine, bed: Bed) -> None:
    bed["hostb"].stop_sshd()
    try:
        report = examine(code=1)
    finally:
        bed["hostb"].start_sshd()
    ((severity, check, hosts, text),) = problems(report)
    assert (severity, check, hosts) == ("fail", "contact", ["hostb"])
    assert "Connection refused" in text
    (advice,) = [one["advice"] for one in report["findings"] if one["check"] == "contact"]
    assert advice == "try by hand: ssh hostb true"
    assert report["hosts"][0]["facts"]["allreduce"]["error"] == ""


def test_an_agent_that_comes_and_one_that_does_not(
    examine: Examine, bed: Bed, horovodrun: str, tmp_path: pathlib.Path
) -> None:
    key = tmp_path / "key"
    key.write_text(secrets.token_hex(32))
    key.chmod(0o600)
    place = ["--rendezvous", "hosta:4711", "--key-file", str(key)]
    with bed["hostb"].popen([horovodrun, "--agent", *place], stdin=subprocess.DEVNULL) as agent:
        try:
            report = examine("--agents", "2", "-np", "2", *place, "--start-timeout", "15", hosts="", code=1)
            assert agent.wait(DEADLINE) == 0
        finally:
            agent.kill()
    assert problems(report) == [("fail", "contact", ["agent 2"], "it did not connect within 15 s (--start-timeout)")]
    assert report["hosts"][0]["name"] == "hostb"
    assert report["hosts"][0]["facts"]["allreduce"]["error"] == ""


def test_the_doctor_of_a_host_alone(examine: Examine) -> None:
    assert problems(examine(hosts="hostb")) == []
