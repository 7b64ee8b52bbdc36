"""horovod.run on hosts that are reached by ssh; here a program that pretends to be ssh and runs the command at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from callers import Meeting, meet
from child import Child

import horovod
from horovod.runner import program
from horovod.runner.function.task import KEY_VARIABLE

# A login starts from an environment of its own, with no trace of the launcher's.
FAKE_SSH = """
import os, sys
words = sys.argv[1:]
while words and words[0].startswith("-"):
    del words[: 2 if words[0] in ("-o", "-p", "-i", "-F", "-l") else 1]
environment = {"PATH": os.environ["PATH"], "HOME": "/", "LOGIN": words[0]}
os.chdir("/")
os.execve("/bin/sh", ["sh", "-c", " ".join(words[1:])], environment)
"""


@pytest.fixture(autouse=True)
def fake_ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "fake_ssh.py"
    script.write_text(FAKE_SSH)
    monkeypatch.setenv("HOROVOD_SSH_COMMAND", f"{sys.executable} {script}")
    monkeypatch.setenv("HOME", str(tmp_path))
    command = [program.find(), "-np", "1", "-H", "elsewhere:1", "sh", "-c", "echo $LOGIN"]
    tried = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert tried.returncode == 0, tried.stderr
    assert "elsewhere" in tried.stdout


@pytest.mark.parametrize("tls", ["0", "1"])
def test_results_come_from_all_hosts(monkeypatch: pytest.MonkeyPatch, tls: str) -> None:
    monkeypatch.setenv("HOROVOD_TLS", tls)

    def total() -> tuple[str, str, float]:
        import numpy as np

        import horovod.numpy as hvd

        hvd.init()
        sum_of_ranks = hvd.allreduce(np.array([float(hvd.rank())]), op=hvd.Sum, name="x")
        return os.environ["LOGIN"], os.environ["HOROVOD_HOSTNAME"], float(sum_of_ranks[0])

    results = horovod.run(total, num_proc=4, hosts="one:2,two:2")
    assert results == [("one", "one", 6.0)] * 2 + [("two", "two", 6.0)] * 2


def test_failure_names_the_host() -> None:
    def body() -> None:
        if os.environ["HOROVOD_RANK"] == "1":
            raise ValueError("far away")
        signal.pause()

    with pytest.raises(RuntimeError, match="rank 1 on two failed: ValueError: far away"):
        horovod.run(body, num_proc=2, hosts="one:1,two:1")


def test_keys_are_on_no_command_line(meeting: Meeting) -> None:
    code = "import horovod, callers; print(horovod.run(callers.meet, {!r}, hosts='elsewhere:1', verbose=2))"
    environment = os.environ | {"PYTHONPATH": os.path.dirname(meet.__code__.co_filename)}
    with Child(
        [sys.executable, "-c", code.format((meeting.here, meeting.go))],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        meeting.wait_for_worker()
        family = psutil.Process(process.pid).children(recursive=True)
        found = {each.environ().get(name) for each in family for name in (KEY_VARIABLE, "_HOROVOD_SECRET_KEY")}
        lines = [Path(f"/proc/{each.pid}/cmdline").read_text() for each in (*family, process)]
        meeting.let_go()
        out, _ = process.communicate(timeout=60)
    keys = [key for key in found if key]
    assert len(keys) == 2
    assert not [line for line in (*lines, out) for key in keys if key in line]
    assert "[None]" in out
