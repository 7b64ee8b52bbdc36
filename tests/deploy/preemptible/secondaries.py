"""The plain scripts of deploy/preemptible at work: a main job on one host, secondaries on others."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from types import TracebackType

from bed import Bed, Machine
from job import Job

ROOT = Path(__file__).resolve().parents[3]
SCRIPTS = ROOT / "deploy/preemptible/hosts"
LIMIT = 60.0


def launch(share: Path, *options: str) -> list[str]:
    """The command of the main job, up to what it trains."""
    return [str(SCRIPTS / "main.sh"), str(share), *options]


class Secondary:
    """secondary.sh on a host. A context manager: it has ended afterwards."""

    def __init__(self, machine: Machine, share: Path, slots: int = 1, **env: str) -> None:
        self.machine = machine
        command = [str(SCRIPTS / "secondary.sh"), str(share), str(slots)]
        self.process = machine.popen(
            command, env=os.environ | env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, start_new_session=True,
        )  # fmt: skip

    def give_notice(self, job: Job | None = None) -> str:
        """What a cloud does before it takes a node: SIGTERM. Returns what it said once it has ended by itself.
        A job that runs is listened to meanwhile: its workers do not go on for long when nobody takes their events."""
        self.process.send_signal(signal.SIGTERM)
        if job:
            job.wait_until(lambda: self.process.poll() is not None, "end of the secondary")
        said, _ = self.process.communicate(timeout=LIMIT)
        assert self.process.returncode == 0, said
        return str(said)

    def __enter__(self) -> Secondary:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate()


def listed(bed: Bed, main: str, share: Path) -> list[str]:
    """What the discovery script prints."""
    env = os.environ | {"PREEMPTIBLE_SHARE": str(share)}
    script = bed[main].run([str(SCRIPTS / "discover.sh")], env=env, capture_output=True, text=True, timeout=LIMIT)
    assert script.returncode == 0, script.stderr
    return str(script.stdout).split()
