"""Runs horovodrun as a user does."""

import pathlib
import subprocess
import sys
from collections.abc import Callable

import pytest

DEADLINE = 180  # seconds until a test gives up waiting for a process

FAKE_SSH = pathlib.Path(__file__).parent / "fake_ssh.py"
# What the MPI operator of Kubernetes installs, with a shell here in the place of one in a pod.
KUBEXEC = """#!/bin/sh
set -x
POD=$1
shift
cd /
exec env -i PATH="$PATH" POD="$POD" /bin/sh -c "$*" {stdin}
"""

Run = Callable[..., subprocess.CompletedProcess[bytes]]


@pytest.fixture(autouse=True)
def chosen_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody has chosen, so the launcher says nothing about it."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


@pytest.fixture
def run(horovodrun: str) -> Run:
    def call(*arguments: str, **options: object) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run([horovodrun, *arguments], capture_output=True, timeout=DEADLINE, **options)  # type: ignore[call-overload,no-any-return]

    return call


@pytest.fixture
def python() -> Callable[[str], list[str]]:
    """A command that runs a piece of Python."""
    return lambda code: [sys.executable, "-c", code]


@pytest.fixture
def hosts(tmp_path, monkeypatch):
    """The directory of fake_ssh.py."""
    monkeypatch.setenv("FAKE_SSH", str(tmp_path))
    monkeypatch.setenv("HOROVOD_SSH_COMMAND", f"{sys.executable} {FAKE_SSH}")
    return tmp_path


@pytest.fixture
def kubexec(tmp_path, monkeypatch):
    """Makes OMPI_MCA_plm_rsh_agent a script of this text."""

    def make(stdin="</dev/null", text=KUBEXEC):
        script = tmp_path / "kubexec.sh"
        script.write_text(text.replace("{stdin}", stdin))
        script.chmod(0o755)
        monkeypatch.setenv("OMPI_MCA_plm_rsh_agent", str(script))
        monkeypatch.delenv("HOROVOD_SSH_COMMAND", raising=False)
        return script

    return make
