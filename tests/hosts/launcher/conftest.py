"""Three hosts with sshd, and a way to start jobs there."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from bed import Bed, Host, why_not
from jobs import assert_nothing_left

QUIET = {"OMP_NUM_THREADS": "1"}  # chosen by the user, so the launcher prints nothing about it


@pytest.fixture(scope="session")
def bed() -> Iterator[Bed]:
    if reason := why_not():
        pytest.skip(f"no test bed: {reason}")
    hosts = [Host("hosta", docker0=True), Host("hostb", nics=["ib0"], docker0=True), Host("hostc", ipv4=False)]
    with Bed(hosts, ssh=True) as bed:
        yield bed


@pytest.fixture
def launch(bed: Bed, horovodrun: str) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts a job on hosta; no process is left afterwards."""
    with contextlib.ExitStack() as processes:

        def start(*arguments: str, on: str = "hosta", env: dict[str, str] | None = None, **options: Any) -> Any:
            pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
            process = bed[on].popen([horovodrun, *arguments], env=os.environ | QUIET | (env or {}), **(pipes | options))
            processes.callback(process.wait)
            processes.callback(process.kill)
            return process

        yield start
    assert_nothing_left(*bed)
