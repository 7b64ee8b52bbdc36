"""deploy/preemptible with the tutorial's training script: Keras on secondaries that come and go."""

from __future__ import annotations

import os
import queue
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from bed import Bed, Host, why_not
from secondaries import ROOT, Secondary, launch

EPOCHS = 250  # more than pass while hosts change
LIMIT = 600.0


class Lines:
    """What a process says, line by line, with a limit."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.said: list[str] = []
        self._lines: queue.Queue[str] = queue.Queue()
        self._thread = threading.Thread(target=self._read, args=(process,), daemon=True)
        self._thread.start()

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout
        for line in process.stdout:
            self._lines.put(line)

    def wait_for(self, pattern: str) -> re.Match[str]:
        """The next line with the pattern."""
        deadline = time.monotonic() + LIMIT
        while True:
            try:
                self.said.append(self._lines.get(timeout=max(0.0, deadline - time.monotonic())))
            except queue.Empty:
                raise AssertionError(f"no line with '{pattern}':\n{''.join(self.said[-60:])}") from None
            if found := re.search(pattern, self.said[-1]):
                return found


def test_keras_trains_to_the_end_while_secondaries_come_and_go(horovodrun: str, tmp_path: Path) -> None:
    if reason := why_not():
        pytest.skip(f"no test bed: {reason}")
    share = tmp_path / "share"
    program = [sys.executable, str(ROOT / "deploy/preemptible/src/train.py"), "--epochs", str(EPOCHS)]
    env = {name: value for name, value in os.environ.items() if not name.startswith("HOROVOD_")} | {
        "PATH": f"{Path(horovodrun).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "python"),
        "PYTHONUNBUFFERED": "1",
        "TF_CPP_MIN_LOG_LEVEL": "2",
    }
    with (
        Bed([Host(name) for name in ("main", "node1", "node2", "node3")]) as bed,
        bed["main"].popen(
            [*launch(share), *program], env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True,
        ) as main,
    ):  # fmt: skip
        lines = Lines(main)
        lines.wait_for("waiting for 2 slots")
        with Secondary(bed["node1"], share) as first, Secondary(bed["node2"], share):
            lines.wait_for("rank 1 of 2 on node[12]")
            first.give_notice()
            lines.wait_for("rank 0 of 1 on node2")
            with Secondary(bed["node3"], share):
                lines.wait_for("rank 1 of 2 on node3")
                accuracy = lines.wait_for(rf"accuracy ([\d.]+)% after {EPOCHS} epochs, 2 ranks at the end")
                assert float(accuracy[1]) > 90
                assert main.wait(LIMIT) == 0
