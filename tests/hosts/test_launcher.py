"""horovodrun over real ssh between test-bed hosts: worlds form, and however a job ends, no process is left anywhere."""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import secrets
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from bed import Bed, Host, Machine, why_not

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEADLINE = 60

REDUCE = """
import numpy as np, horovod.numpy as hvd
hvd.init()
result = hvd.allreduce(np.arange(1000.0) + hvd.rank(), op=hvd.Sum)
assert result[1] == hvd.size() + hvd.size() * (hvd.size() - 1) / 2
print("reduced", hvd.rank(), "of", hvd.size(), "on", __import__("socket").gethostname(), flush=True)
hvd.shutdown()
"""
# Tells that it runs, leaves a child that left its session, and is deaf to everything but SIGKILL.
STUBBORN = """
import os, signal, subprocess, sys
for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
    signal.signal(number, signal.SIG_IGN)
subprocess.Popen(["sleep", "1000"], start_new_session=True, stdout=subprocess.DEVNULL)
print("up", flush=True)
while True:
    signal.pause()
"""
WAIT = "import signal; print('up', flush=True); signal.pause()"
SPREAD = ["-np", "4", "-H", "hosta:1,hostb:2,hostc:1"]


@pytest.fixture(scope="module")
def bed() -> Iterator[Bed]:
    if reason := why_not():
        pytest.skip(f"no test bed: {reason}")
    hosts = [Host("hosta", docker0=True), Host("hostb", nics=["ib0"], docker0=True), Host("hostc", ipv4=False)]
    with Bed(hosts, ssh=True) as bed:
        yield bed


@pytest.fixture
def horovodrun() -> str:
    path = os.environ.get("HOROVODRUN") or str(ROOT / "python/horovod/bin/horovodrun")
    assert os.access(path, os.X_OK), f"{path} is missing: run make first"
    return path


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def sessions(machine: Machine) -> set[int]:
    """Everything on a host but its sshd."""
    found = set()
    for pid in machine.pids():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if (
                not pathlib.Path(f"/proc/{pid}/cmdline")
                .read_bytes()
                .startswith((b"sshd: /usr/sbin/sshd", b"/usr/sbin/sshd"))
            ):
                found.add(pid)
    return found


def assert_nothing_left(*machines: Machine) -> None:
    """Waits for it: a process that was killed needs a moment to be gone."""
    end = time.monotonic() + DEADLINE
    for machine in machines:
        while left := sessions(machine):
            if time.monotonic() > end:
                names = [pathlib.Path(f"/proc/{pid}/cmdline").read_bytes() for pid in left]
                raise AssertionError(f"left on {machine.name}: {names}")
            time.sleep(0.02)


def of_command(machine: Machine, *words: bytes) -> list[int]:
    found = []
    for pid in machine.pids():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if all(word in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes() for word in words):
                found.append(pid)
    return found


@pytest.fixture
def launch(bed: Bed, horovodrun: str) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts a job on hosta; whatever becomes of it, nothing is left afterwards."""
    with contextlib.ExitStack() as processes:

        def start(*arguments: str, on: str = "hosta", env: dict[str, str] | None = None, **options: Any) -> Any:
            pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
            process = bed[on].popen([horovodrun, *arguments], env=os.environ | (env or {}), **(pipes | options))
            processes.callback(process.wait)
            processes.callback(process.kill)
            return process

        yield start
    assert_nothing_left(*bed)


def finish(process: subprocess.Popen[str], code: int) -> tuple[str, str]:
    out, err = process.communicate(timeout=DEADLINE)
    assert process.returncode == code, (out, err)
    return out, err


def await_up(process: subprocess.Popen[str], count: int) -> None:
    assert process.stdout
    end = time.monotonic() + DEADLINE
    seen = ""
    while seen.count("up\n") < count:
        assert select.select([process.stdout], [], [], max(0, end - time.monotonic()))[0], seen
        seen += (part := os.read(process.stdout.fileno(), 4096).decode())
        assert part, seen + (process.stderr.read() if process.stderr else "")


# ---- starts


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


@pytest.fixture
def keys(tmp_path: pathlib.Path) -> list[str]:
    """Two files with different keys."""
    files = [tmp_path / "key", tmp_path / "other"]
    for file in files:
        file.write_text(secrets.token_hex(32) + "\n")
        file.chmod(0o600)
    return [str(file) for file in files]


@pytest.mark.parametrize("tls", [(), ("--tls",)], ids=["plain", "tls"])
def test_agents_come_in_any_order(launch: Any, keys: list[str], tls: tuple[str, ...]) -> None:
    early = launch("--agent", "--rendezvous", "hosta:4711", "--key-file", keys[0], on="hostb")
    launcher = launch(
        "-np", "3", "--agents", "2", "--rendezvous", "0.0.0.0:4711", "--key-file", keys[0], *tls, *python(REDUCE)
    )
    late = launch("--agent", "--rendezvous", "hosta:4711", on="hosta", stdin=subprocess.PIPE)
    late.stdin.write(pathlib.Path(keys[0]).read_text())
    late.stdin.flush()
    out, err = finish(launcher, 0)
    expected = ["reduced 0 of 3 on hosta", "reduced 1 of 3 on hosta", "reduced 2 of 3 on hostb"]
    assert [line.partition(":")[2] for line in sorted(out.splitlines())] == expected, err
    for agent in (early, late):
        finish(agent, 0)


def test_an_agent_with_another_key_is_refused_and_disturbs_nothing(launch: Any, keys: list[str]) -> None:
    launcher = launch("-np", "1", "--agents", "1", "--rendezvous", "0.0.0.0:4711", "--key-file", keys[0], "echo", "x")
    place = ["--rendezvous", "hosta:4711", "--start-timeout", "1"]
    assert launcher.stderr.readline() == "horovodrun: waiting for 1 agent at 0.0.0.0:4711\n"
    _, err = finish(launch("--agent", *place, "--key-file", keys[1], on="hostb"), 1)
    assert "horovodrun --agent: the launcher has another key than we: " in err
    finish(launch("--agent", *place, "--key-file", keys[0], on="hostb"), 0)
    out, _ = finish(launcher, 0)
    assert out == "[0]<stdout>:x\n"


def test_agents_end_with_their_launcher(launch: Any, bed: Bed, keys: list[str]) -> None:
    launcher = launch(
        "-np", "2", "--agents", "2", "--rendezvous", "0.0.0.0:4711", "--key-file", keys[0], *python(STUBBORN)
    )
    agents = [
        launch("--agent", "--rendezvous", "hosta:4711", "--key-file", keys[0], on=on) for on in ("hosta", "hostb")
    ]
    await_up(launcher, 2)
    for pid in of_command(bed["hosta"], b"--agents"):  # the launcher, and who watches over it
        os.kill(pid, signal.SIGKILL)
    for agent in agents:
        _, err = finish(agent, 1)
        assert "horovodrun --agent: the launcher is gone: " in err
    assert_nothing_left(*bed)


def test_keys_that_others_may_read_are_refused(launch: Any, keys: list[str]) -> None:
    os.chmod(keys[0], 0o644)
    _, err = finish(launch("--agent", "--rendezvous", "hosta:4711", "--key-file", keys[0]), 1)
    assert f"chmod 600 {keys[0]}" in err


def test_an_agent_too_many_leaves_with_the_others(launch: Any, keys: list[str]) -> None:
    place = ["--rendezvous", "hosta:4711", "--key-file", keys[0]]
    agents = [launch("--agent", *place, on=on) for on in ("hosta", "hostb")]
    launcher = launch("-np", "1", "--agents", "2", "--rendezvous", "0.0.0.0:4711", "--key-file", keys[0], "echo", "x")
    assert finish(launcher, 0)[0] == "[0]<stdout>:x\n"
    for agent in agents:
        finish(agent, 0)


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


# ---- host keys


def ssh_config(directory: pathlib.Path, *lines: str) -> dict[str, str]:
    """A client whose user has configured nothing but where keys are."""
    config = directory / "config"
    own = [
        "IdentityFile /etc/ssh/id_testbed",
        "GlobalKnownHostsFile /dev/null",
        f"UserKnownHostsFile {directory}/known",
    ]
    config.write_text("\n".join([*own, "LogLevel ERROR", *lines]) + "\n")
    return {"HOROVOD_SSH_COMMAND": f"ssh -F {config}"}


def test_a_new_host_key_is_taken_and_a_changed_one_refused(launch: Any, bed: Bed, tmp_path: pathlib.Path) -> None:
    env = ssh_config(tmp_path)
    finish(launch("-np", "1", "-H", "hostb:1", "true", env=env), 0)
    known = tmp_path / "known"
    assert known.read_text().startswith("hostb ")
    finish(launch("-np", "1", "-H", "hostb:1", "--ssh-strict", "true", env=env), 0)
    name, kind, _ = known.read_text().split(maxsplit=2)
    other = (bed["hostc"].directory / "ssh/ssh_host_ed25519_key.pub").read_text().split()[1]
    known.write_text(f"{name} {kind} {other}\n")
    _, err = finish(launch("-np", "1", "-H", "hostb:1", "true", env=env), 1)
    assert "    hostb  its host key has changed" in err
    assert "ssh-keygen -R hostb" in err


def test_strict_means_known_hosts_only(launch: Any, tmp_path: pathlib.Path) -> None:
    env = ssh_config(tmp_path)
    _, err = finish(launch("-np", "1", "-H", "hostb:1", "--ssh-strict", "true", env=env), 1)
    assert "    hostb  its host key is not known, and --ssh-strict asks for known ones" in err
    assert not (tmp_path / "known").exists()


def test_the_users_own_setting_of_host_keys_wins(launch: Any, tmp_path: pathlib.Path) -> None:
    env = ssh_config(tmp_path, "StrictHostKeyChecking yes")
    _, err = finish(launch("-np", "1", "-H", "hostb:1", "true", env=env), 1)
    assert "    hostb  its host key is not known" in err


def test_port_and_identity(launch: Any, bed: Bed, tmp_path: pathlib.Path) -> None:
    server = bed["hostb"].popen(
        ["/usr/sbin/sshd", "-D", "-e", "-p", "2222", "-o", "PidFile=none"], stderr=subprocess.PIPE, text=True
    )
    try:
        assert server.stderr
        while "Server listening on :: port 2222" not in (line := server.stderr.readline()):
            assert line
        identity = tmp_path / "identity"
        identity.write_bytes((bed["hosta"].directory / "ssh/id_testbed").read_bytes())
        identity.chmod(0o600)
        config = tmp_path / "empty"
        config.write_text(f"UserKnownHostsFile {tmp_path}/known\nLogLevel ERROR\n")
        env = {"HOROVOD_SSH_COMMAND": f"ssh -F {config}"}
        command = ["-np", "1", "-H", "hostb:1", "-p", "2222"]
        finish(launch(*command, "-i", str(identity), "true", env=env), 0)
        _, err = finish(launch(*command, "true", env=env), 1)
        assert "    hostb  it lets nobody in without asking (" in err
    finally:
        server.kill()
        server.wait()


def test_hosts_that_are_down_and_names_that_are_unknown(launch: Any, bed: Bed) -> None:
    bed["hostc"].stop_sshd()
    try:
        _, err = finish(launch("-np", "3", "-H", "hosta:1,hostc:1,nosuchhost:1", "true"), 1)
    finally:
        bed["hostc"].start_sshd()
    assert "horovodrun: 2 of 2 hosts cannot be used, so nothing was started:\n" in err
    assert re.search(r"    hostc {7}connect to host hostc port 22: Connection refused\n {16}try: ssh hostc true\n", err)
    assert "nosuchhost  Could not resolve hostname" in err


# ---- endings


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
    assert "horovodrun: lost host hostb: connection closed by the peer" in err
    assert_nothing_left(*bed)


def test_a_killed_agent_is_a_lost_host(launch: Any, bed: Bed) -> None:
    process = launch(*SPREAD, *python(STUBBORN))
    await_up(process, 4)
    inner = max(of_command(bed["hostb"], b"--agent"))
    os.kill(inner, signal.SIGKILL)
    _, err = finish(process, 1)
    assert "horovodrun: lost host hostb: connection closed by the peer" in err
    assert "agent was killed by SIGKILL" in err
    assert_nothing_left(*bed)


QUICK = {"HOROVOD_SILENCE_SECONDS": "1"}


def test_a_frozen_host_is_lost_and_cleans_up_when_it_thaws(launch: Any, bed: Bed) -> None:
    process = launch(*SPREAD, *python(STUBBORN), env=QUICK)
    await_up(process, 4)
    bed["hostb"].freeze()
    try:
        _, err = finish(process, 1)
        assert "horovodrun: lost host hostb: no sign of life for 2 s" in err
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
        assert "horovodrun: lost host hostb: no sign of life for 2 s" in err
        end = time.monotonic() + DEADLINE
        while of_command(bed["hostb"], b"--agent") or of_command(bed["hostb"], b"sleep"):
            assert time.monotonic() < end
            time.sleep(0.02)
    finally:
        bed["hostb"].heal()
        for pid in of_command(bed["hostb"], b"sshd: root"):  # which waits for its lost client for long
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
    assert "horovodrun: lost host hostc: no sign of life for 2 s" in err
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
