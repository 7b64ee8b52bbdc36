"""Tests that start jobs with MXNet in them, in the environment of MXNet."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from ranks import ROOT

Job = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """Runs a script with horovodrun: job(arguments of horovodrun, script, arguments of the script)."""

    def call(options: list[str], script: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        program = str(ROOT / "python/horovod/bin/horovodrun")
        command = [program, *options, sys.executable, str(script), *arguments]
        environment = {**os.environ, "PYTHONPATH": f"{ROOT}/python", **variables}
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    return call
