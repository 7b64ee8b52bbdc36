"""The commands of live.yaml on hosts that play the platform's containers, with a small training in place of Keras."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bed import Bed, Host, why_not
from container import Container
from jobs import await_up

ROOT = Path(__file__).resolve().parents[3]
LIMIT = 60.0
TRAIN = """
import os, pathlib, numpy as np, horovod.numpy as hvd
from horovod.common.elastic import ObjectState, run_fn

END = pathlib.Path(__file__).with_name("end")

def train(state):
    print("world of", hvd.size(), flush=True)
    while not hvd.allreduce(np.array([float(END.exists())]), name="step", op=hvd.Max)[0]:
        state.step += 1
        state.commit()

def form_world():
    hvd.shutdown()
    hvd.init()

hvd.init()
run_fn(train, form_world)(ObjectState(hvd.broadcast_object, hvd.rank, step=0))
print("trained with", hvd.size(), "on", os.uname().nodename, flush=True)
"""


@pytest.fixture
def bed() -> Iterator[Bed]:
    if reason := why_not():
        pytest.skip(f"no test bed: {reason}")
    with Bed([Host(name) for name in ("main", "node1", "node2")]) as bed:
        yield bed


class Platform:
    """Starts jobs as the platform does: in a container with the volumes and secrets of the job."""

    def __init__(self, folder: Path, jobs: dict[str, Any]) -> None:
        self._folder, self._jobs = folder, jobs
        self.src = folder / "src"
        self.src.mkdir()
        (folder / "bin").mkdir()
        for path, text in (
            (folder / "bin/pip", "#!/bin/sh\n"),  # the SDK is not needed: hosts are in a file
            (self.src / "discover-training-hosts.py", '#!/bin/sh\ncat "$(dirname "$0")/hosts"\n'),
            (self.src / "train.py", TRAIN),
        ):
            path.write_text(text)
            path.chmod(0o755)
        subprocess.run(["ssh-keygen", "-q", "-t", "rsa", "-N", "", "-f", folder / "id_rsa"], check=True)

    def list(self, *hosts: str) -> None:
        new = self._folder / "hosts.new"
        new.write_text("".join(f"{host}:1\n" for host in hosts))
        new.replace(self.src / "hosts")

    def start(self, bed: Bed, host: str, name: str) -> subprocess.Popen[str]:
        job = self._jobs[name]
        secrets = self._folder / f"{host}-secrets"
        secrets.mkdir()
        for volume in job["volumes"]:
            if volume.startswith("secret:"):
                key = "id_rsa.pub" if "-pub:" in volume else "id_rsa"
                target = secrets / Path(volume.split(":")[2]).name
                target.write_bytes((self._folder / key).read_bytes())
                target.chmod(0o600)
        container = Container(bed[host], {"/root/.ssh": secrets, "/root/app/src": self.src})
        ours = f"{self._folder / 'bin'}:{Path(sys.executable).parent}:{ROOT / 'python/horovod/bin'}"
        path = f"{ours}:/usr/sbin:/usr/bin:/sbin:/bin"
        settings = f"printf 'UsePAM no\nSetEnv PATH={path}\n' >/etc/ssh/sshd_config"  # as install-runtime.sh does it
        container.run(["sh", "-c", settings], check=True)
        variables = {"PATH": path, "OMP_NUM_THREADS": "1"}
        # Processes of its own, as in a container: it may signal them by name.
        alone = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
        return container.popen(
            [*alone, *shlex.split(job["cmd"])],
            env=variables | job.get("env", {}) | {"PYTHONPATH": str(ROOT / "python")},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )


def first_child(process: subprocess.Popen[str]) -> int:
    """What unshare has started."""
    return int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()[0])


def test_a_secondary_that_gets_notice_leaves_and_the_others_go_on(
    bed: Bed, jobs: dict[str, Any], tmp_path: Path
) -> None:
    platform = Platform(tmp_path, jobs)
    platform.list("node1", "node2")
    secondaries = [platform.start(bed, name, "secondary") for name in ("node1", "node2")]
    main = platform.start(bed, "main", "main")
    await_up(main, 2, "world of 2\n")
    os.kill(first_child(secondaries[0]), signal.SIGTERM)
    await_up(main, 1, "world of 1\n")
    said, _ = secondaries[0].communicate(timeout=LIMIT)
    assert secondaries[0].returncode == 0, said
    platform.list("node2")
    (platform.src / "end").touch()
    said, _ = main.communicate(timeout=LIMIT)
    assert main.returncode == 0, said
    assert "trained with 1 on node2" in said
    secondaries[1].kill()
    secondaries[1].communicate(timeout=LIMIT)
