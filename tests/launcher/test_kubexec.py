"""Hosts that are reached by a program that gives the agent no stdin, as `kubectl exec` without -i does."""

import os
import pathlib
import re
import signal
import socket
import subprocess
import sys

import pytest
from child import Child
from waiting import DEADLINE, WAIT

SHOW = "import json, os; print(json.dumps(dict(os.environ)))"


@pytest.mark.parametrize("stdin", ["", "</dev/null", "<&-"], ids=["passed on", "empty", "closed"])
def test_pods_are_reached(run, kubexec, stdin):
    kubexec(stdin)
    result = run("-np", "3", "-H", "pod-1:1,pod-2:2", "-p", "22", "sh", "-c", "echo $HOROVOD_RANK on $POD")
    assert result.returncode == 0, result.stderr.decode()
    lines = sorted(result.stdout.decode().splitlines())
    assert lines == ["[0]<stdout>:0 on pod-1", "[1]<stdout>:1 on pod-2", "[2]<stdout>:2 on pod-2"]


def test_a_world_forms(run, kubexec):
    kubexec()
    code = """
import numpy as np, horovod.numpy as hvd
hvd.init()
assert hvd.allreduce(np.ones(1000), op=hvd.Sum)[-1] == hvd.size() == 3
print("reduced")
"""
    result = run("-np", "3", "-H", "pod-1:1,pod-2:2", sys.executable, "-c", code)
    assert result.returncode == 0, result.stderr.decode()
    assert result.stdout.count(b"reduced") == 3


def test_another_program_without_stdin(run, tmp_path, monkeypatch):
    script = tmp_path / "enter"
    script.write_text('#!/bin/sh\nwhile [ "$1" != pod ]; do shift; done; shift; exec /bin/sh -c "$*" </dev/null\n')
    script.chmod(0o755)
    monkeypatch.setenv("HOROVOD_SSH_COMMAND", str(script))
    assert run("-np", "1", "-H", "pod:1", "echo", "x").stdout == b"[0]<stdout>:x\n"


def test_the_doctor(run, kubexec, monkeypatch):
    kubexec()
    monkeypatch.setenv("PATH", f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}")
    result = run("--doctor", "-H", "pod-1:1,pod-2:1")
    assert b" on 2 hosts:" in result.stdout, (result.stdout, result.stderr)
    assert re.search(rb"ok +allreduce +all hosts +1 MiB over 2 hosts", result.stdout), result.stdout


def test_two_hundred_pods(kubexec, horovodrun):
    kubexec()
    names = [f"n{number}" for number in range(200)]
    where = ",".join(f"{name}:1" for name in names)
    command = [horovodrun, "-np", "200", "-H", where, "--start-timeout", "300", "sh", "-c", "echo $POD"]
    result = subprocess.run(command, capture_output=True, timeout=300)
    assert result.returncode == 0, result.stderr.decode()
    assert sorted(line.partition(":")[2] for line in result.stdout.decode().splitlines()) == sorted(names)


def test_a_pod_that_cannot_reach_the_launcher_is_told_from_one_that_does_not_answer(run, kubexec):
    """Its answer comes, its call does not."""
    answer = "printf '\\n\\0horovod agent certificate %s\\n' " + "a5" * 32
    kubexec(text=f"#!/bin/sh\n[ $1 = deaf ] && {answer}\nexec sleep 1000\n")
    result = run("-np", "2", "-H", "deaf:1,mute:1", "--start-timeout", "10", "true")
    assert result.returncode == 1
    assert re.search(
        rb"    deaf  its agent is running, but did not reach this machine within 10 s .* at port \d+ of ", result.stderr
    )
    assert b"    mute  no answer within 10 s (--start-timeout)\n" in result.stderr


def test_an_answer_that_is_none(run, kubexec):
    kubexec(text="#!/bin/sh\nprintf '\\n\\0horovod agent certificate of another time\\n'\nexec sleep 1000\n")
    result = run("-np", "1", "-H", "pod:1", "true")
    assert result.returncode == 1
    assert b"    pod  its agent uses a protocol that this horovodrun does not support" in result.stderr


# ---- connections that are accepted


def test_nothing_secret_is_where_others_can_read_it(horovodrun, kubexec):
    kubexec()
    code = (
        "import os; print(os.environ['_HOROVOD_SECRET_KEY'], os.environ['_HOROVOD_TLS_IDENTITY'], flush=True);" + WAIT
    )
    command = [horovodrun, "-np", "1", "-H", "pod:1", "--verbose", "--tls", sys.executable, "-c", code]
    secret = "5ec7e7" * 10  # as horovod.run has one in the launcher's environment
    environment = os.environ | {"_HOROVOD_RUN_KEY": secret}
    with Child(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as process:
        try:
            keys = process.stdout.readline().partition(b":")[2].split()
            worker = int(process.stdout.readline().rpartition(b":")[2])
            children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            known = {process.pid, worker, *map(int, children)}  # the launcher, its guard, and the worker
            lines = 0
            for entry in pathlib.Path("/proc").glob("[0-9]*"):
                try:
                    text = (entry / "cmdline").read_bytes()
                    lines += b"--agent\0-\0" in text
                    if int(entry.name) not in known:
                        text += (entry / "environ").read_bytes()
                except OSError:
                    continue
                assert not any(key in text for key in [*keys, secret.encode()]), text
            assert len(keys) == 2 and lines >= 2
        finally:
            process.terminate()
            _, err = process.communicate(timeout=DEADLINE)
    assert not any(key in err for key in keys)


def test_who_has_read_the_command_line_is_not_let_in(horovodrun, kubexec, tmp_path):
    """A stranger follows the same invitation, before the agent does, and while the launcher greets it."""
    os.mkfifo(tmp_path / "invitation")
    os.mkfifo(tmp_path / "go")
    text = 'shift; echo "$*" >DIR/invitation; read -r go <DIR/go; exec /bin/sh -c "$*" </dev/null'
    kubexec(text="#!/bin/sh\n" + text.replace("DIR", str(tmp_path)))
    command = [horovodrun, "-np", "1", "-H", "pod:1", "--start-timeout", "60", *("echo", "x")]
    with Child(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        invitation = (tmp_path / "invitation").read_text().split()[-1]
        certificate, port, _, addresses = invitation.split(",", 3)
        # What it says is no TLS at all; it stays, to be in the launcher's way.
        silent = [socket.create_connection((addresses.split(",")[0], int(port))) for _ in range(10)]
        silent[0].sendall(b"GET / HTTP/1.1\r\n\r\n")
        stranger = subprocess.Popen(
            [horovodrun, "--agent", "-", f"{certificate},{port},3,{addresses}"],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        assert stranger.stdout.readline() == b"\n"
        assert stranger.stdout.readline().startswith(b"\0horovod agent certificate ")
        (tmp_path / "go").write_text("go\n")
        out, err = process.communicate(timeout=DEADLINE)
        assert (process.returncode, out) == (0, b"[0]<stdout>:x\n"), err
        _, said = stranger.communicate(timeout=DEADLINE)
        assert stranger.returncode == 1
        assert b"horovodrun --agent: cannot connect to the launcher" in said
    for each in silent:
        each.close()


def test_a_lost_kubexec_is_no_loss(kubexec, horovodrun, python, tmp_path):
    """The conversation does not need it any more."""
    text = f'shift; echo $$ >{tmp_path}/pid; exec 3>&1; setsid -f /bin/sh -c "$*" </dev/null >&3; exec sleep 1000'
    kubexec(text="#!/bin/sh\n" + text)
    os.mkfifo(tmp_path / "go")
    code = f"print('up', flush=True); open({str(tmp_path / 'go')!r}).read(); print('done')"
    with Child(
        [horovodrun, "-np", "1", "-H", "pod:1", *python(code)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout.readline() == b"[0]<stdout>:up\n"
        victim = os.pidfd_open(int((tmp_path / "pid").read_text()))
        signal.pidfd_send_signal(victim, signal.SIGKILL)
        os.close(victim)
        (tmp_path / "go").write_text("go")
        out, err = process.communicate(timeout=DEADLINE)
    assert (process.returncode, out) == (0, b"[0]<stdout>:done\n"), err
