"""Jobs with torch.distributed in them: how they are launched, and what happens when a rank fails."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from ranks import ROOT

Job = Callable[..., "subprocess.CompletedProcess[str]"]
LIMIT = 150  # seconds, for what hangs

PRELUDE = """
import os, signal, sys, time
import faulthandler
faulthandler.dump_traceback_later(120, exit=True)
import torch
import torch.distributed as dist
import horovod.torch.distributed
def say(text):
    print(text, flush=True)
"""


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    """Runs a script, given as text or as a file: job("horovodrun" or "torchrun", ranks, script, arguments)."""
    processes: list[subprocess.Popen[str]] = []

    def call(
        launcher: str, ranks: int, script: str | Path, *arguments: str, options: tuple[str, ...] = (), **variables: str
    ) -> subprocess.CompletedProcess[str]:
        if isinstance(script, str):
            path = tmp_path / "script.py"
            path.write_text(PRELUDE + script)
            script = path
        if launcher == "horovodrun":
            program = str(ROOT / "python/horovod/bin/horovodrun")
            command = [program, "-np", str(ranks), *options, sys.executable, str(script)]
        else:
            torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
            command = [*torchrun, *options, str(script)]
        environment = {**os.environ, "PYTHONPATH": f"{ROOT}/python", "OMP_NUM_THREADS": "1", **variables}
        process = subprocess.Popen(
            [*command, *arguments],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        processes.append(process)
        output, errors = process.communicate(timeout=LIMIT)
        return subprocess.CompletedProcess(process.args, process.returncode, output, errors)

    yield call
    for process in processes:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
