"""The job scripts of examples/jobs, as they are: real Slurm; LSF and PBS by what they set and stand-in commands."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import slurm
from bed import Bed, Host, why_not

ROOT = Path(__file__).resolve().parents[2]
JOBS = ROOT / "examples/jobs"
DEADLINE = 60  # seconds for a job
NODES = ["node1", "node2"]
TRAIN = """
import os, socket
import numpy as np, horovod.numpy as hvd
hvd.init()
total = hvd.allreduce(np.array([hvd.rank() + 1.0]), op=hvd.Sum)
# in one piece, in which the lines of ranks cannot mix
os.write(1, f"rank {hvd.rank()} of {hvd.size()} on {socket.gethostname()}: {total[0]:.0f}\\n".encode())
hvd.shutdown()
"""
TRAINED = [f"rank {rank} of 4 on node{rank // 2 + 1}: 10" for rank in range(4)]
# `blaunch HOST COMMAND...`, as in LSF, but over the ssh of the test bed.
BLAUNCH = '#!/bin/sh\nhost=$1\nshift\nexec ssh "$host" "cd $PWD && $*"\n'


@pytest.fixture(scope="module")
def nodes() -> Iterator[Bed]:
    if reason := why_not():
        pytest.skip(f"no test bed: {reason}")
    with Bed([Host(name) for name in NODES], ssh=True) as bed:
        yield bed


@pytest.fixture(scope="module")
def cluster(nodes: Bed, tmp_path_factory: pytest.TempPathFactory) -> slurm.Cluster:
    if reason := slurm.why_not():
        pytest.skip(f"no cluster: {reason}")
    return slurm.Cluster(nodes, tmp_path_factory.mktemp("slurm"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the job is submitted: it has train.py, and commands of its own in bin."""
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "bin").mkdir()
    for name, target in [("python", sys.executable), ("horovodrun", str(ROOT / "python/horovod/bin/horovodrun"))]:
        wrapper = tmp_path / "bin" / name  # not a link: an environment's python looks where it is itself
        wrapper.write_text(f'#!/bin/sh\nexec {target} "$@"\n')
        wrapper.chmod(0o755)
    return tmp_path


def environment(folder: Path, **variables: object) -> dict[str, str]:
    own = ("HOROVOD_", "_HOROVOD_", "SLURM", "OMPI_", "PMI", "LSB_", "PBS_")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(own)}
    ours = {"PATH": f"{folder / 'bin'}:{inherited['PATH']}", "PYTHONPATH": str(ROOT / "python"), "OMP_NUM_THREADS": "1"}
    return {**inherited, **ours, **{name: str(value) for name, value in variables.items()}}


def trained(output: str) -> list[str]:
    return sorted(line.rpartition("<stdout>:")[2] for line in output.splitlines() if ": 10" in line)


def batch(cluster: slurm.Cluster, folder: Path, script: Path) -> tuple[str, str]:
    """How the job ended, and what it wrote. (sbatch --wait looks every 10 s.)"""
    submit = ["sbatch", "--parsable", "-o", folder / "out", script]
    job = cluster.run(submit, env=environment(folder), cwd=folder, check=True).stdout.strip()
    until = time.monotonic() + DEADLINE
    while (state := job_state(cluster, job)) in ("PENDING", "RUNNING", "COMPLETING") and time.monotonic() < until:
        time.sleep(0.1)
    cluster.run(["scancel", job])  # nothing, unless it took too long
    return state, (folder / "out").read_text() if (folder / "out").exists() else ""


def job_state(cluster: slurm.Cluster, job: str) -> str:
    return cluster.run(["squeue", "-h", "-t", "all", "-j", job, "-o", "%T"], check=True).stdout.strip()


@pytest.mark.parametrize("script", ["slurm_srun.sh", "slurm_horovodrun.sh", "slurm_agents.sh"])
def test_slurm(cluster: slurm.Cluster, folder: Path, script: str) -> None:
    state, output = batch(cluster, folder, JOBS / script)
    assert state == "COMPLETED", output
    assert trained(output) == TRAINED, output
    assert not list(folder.glob(".key*")), "the key is left"


def run(nodes: Bed, script: str, **options: object) -> subprocess.CompletedProcess[str]:
    return nodes["node1"].run(["bash", JOBS / script], capture_output=True, text=True, timeout=120, **options)


@pytest.mark.parametrize("script", ["lsf.sh", "lsf_blaunch.sh"])
def test_lsf(nodes: Bed, folder: Path, script: str) -> None:
    (folder / "bin/blaunch").write_text(BLAUNCH)
    (folder / "bin/blaunch").chmod(0o755)
    (folder / "hostfile").write_text("node1\nnode1\nnode2\nnode2\n")
    variables = {"LSB_JOBID": 4711, "LSB_DJOB_HOSTFILE": folder / "hostfile", "LSB_MCPU_HOSTS": "node1 2 node2 2"}
    result = run(nodes, script, env=environment(folder, **variables), cwd=folder)
    assert result.returncode == 0, result.stdout + result.stderr
    assert trained(result.stdout) == TRAINED, result.stdout
    assert not list(folder.glob(".key*")), "the key is left"


def test_pbs(nodes: Bed, folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    (folder / "nodefile").write_text("node1\nnode1\nnode2\nnode2\n")
    variables = {"PBS_JOBID": "12.server", "PBS_NODEFILE": folder / "nodefile", "PBS_O_WORKDIR": folder}
    home = tmp_path_factory.mktemp("home")  # where PBS starts a script
    result = run(nodes, "pbs.sh", env=environment(folder, **variables), cwd=home)
    assert result.returncode == 0, result.stdout + result.stderr
    assert trained(result.stdout) == TRAINED, result.stdout


def test_ssh(nodes: Bed, folder: Path) -> None:
    (folder / "hosts").write_text("node1 slots=2\nnode2 slots=2\n")
    result = run(nodes, "ssh.sh", env=environment(folder), cwd=folder)
    assert result.returncode == 0, result.stdout + result.stderr
    assert trained(result.stdout) == TRAINED, result.stdout
    assert "MiB over 2 hosts" in result.stdout, "the doctor did not try an allreduce"


def test_every_script_is_tried_here_and_named_in_the_guide() -> None:
    guide = (ROOT / "docs/running.md").read_text()
    here = Path(__file__).read_text()
    for script in JOBS.glob("*.sh"):
        assert f'"{script.name}"' in here
        assert f"(../examples/jobs/{script.name})" in guide
