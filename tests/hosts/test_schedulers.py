"""Programs that srun, sbatch and mpirun start without horovodrun, and horovodrun inside an allocation."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import slurm
from bed import Bed, Host, why_not

ROOT = Path(__file__).resolve().parents[2]
HOROVODRUN = os.environ.get("HOROVODRUN") or str(ROOT / "python/horovod/bin/horovodrun")
PLACES = """
import numpy as np, horovod.numpy as hvd
hvd.init()
sum = hvd.allreduce(np.array([hvd.rank() + 1.0]), op=hvd.Sum)
place = [hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size(), hvd.cross_rank(), hvd.cross_size(), int(sum[0])]
import os
os.write(1, (" ".join(map(str, place)) + "\\n").encode())  # in one piece: the lines of ranks must not mix
hvd.shutdown()
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    path = tmp_path_factory.mktemp("program") / "places.py"
    path.write_text(PLACES)
    return [sys.executable, str(path)]


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    own = ("HOROVOD_", "_HOROVOD_", "SLURM", "OMPI_", "PMI")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(own)}
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    own_cache = {"XDG_CACHE_HOME": str(tmp_path_factory.mktemp("cache"))}  # of the MPI plugin
    return {**inherited, **root, **own_cache, "PYTHONPATH": str(ROOT / "python"), "HOROVOD_START_TIMEOUT": "60"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[slurm.Cluster]:
    if reason := why_not() or slurm.why_not():
        pytest.skip(f"no cluster: {reason}")
    with Bed([Host(f"node{number}") for number in (1, 2, 3)]) as bed:
        yield slurm.Cluster(bed, tmp_path_factory.mktemp("slurm"))


def places(result: subprocess.CompletedProcess[str]) -> list[list[int]]:
    assert result.returncode == 0, result.stdout + result.stderr
    return sorted([int(word) for word in line.split()] for line in result.stdout.splitlines())


def with_key(environment: dict[str, str]) -> dict[str, str]:
    return {**environment, "_HOROVOD_SECRET_KEY": os.urandom(32).hex()}


def test_srun_on_several_hosts(cluster: slurm.Cluster, program: list[str], environment: dict[str, str]) -> None:
    result = cluster.run(["srun", "-N3", "-n6", "--ntasks-per-node=2", *program], env=with_key(environment))
    assert places(result) == [[rank, 6, rank % 2, 2, rank // 2, 3, 21] for rank in range(6)]


def test_srun_deals_ranks_in_turn(cluster: slurm.Cluster, program: list[str], environment: dict[str, str]) -> None:
    result = cluster.run(
        ["srun", "-N2", "-n4", "-m", "cyclic", "--ntasks-per-node=2", *program], env=with_key(environment)
    )
    assert places(result) == [[rank, 4, rank // 2, 2, rank % 2, 2, 10] for rank in range(4)]


def test_srun_without_a_key_is_told_what_to_do(
    cluster: slurm.Cluster, program: list[str], environment: dict[str, str]
) -> None:
    result = cluster.run(["srun", "-N2", "-n2", *program], env=environment)
    assert result.returncode != 0
    assert result.stderr.count("export _HOROVOD_SECRET_KEY=$(openssl rand -hex 32)") == 2
    assert result.stdout == ""


@pytest.mark.parametrize("plugin", ["none", "pmi2"])
def test_srun_on_one_host_needs_nothing(
    cluster: slurm.Cluster, program: list[str], environment: dict[str, str], plugin: str
) -> None:
    result = cluster.run(["srun", "-N1", "-n3", f"--mpi={plugin}", *program], env=environment)
    assert places(result) == [[rank, 3, rank, 3, 0, 1, 6] for rank in range(3)]


def test_a_batch_script_is_no_rank_and_horovodrun_sees_its_allocation(
    cluster: slurm.Cluster, program: list[str], environment: dict[str, str], tmp_path: Path
) -> None:
    script = tmp_path / "job.sh"
    script.write_text(f"#!/bin/sh\n{' '.join(program)}\nexec {HOROVODRUN} --dry-run true\n")
    result = cluster.run(
        ["sbatch", "--wait", "-N2", "-n3", "-o", str(tmp_path / "out"), str(script)], env=environment, cwd=tmp_path
    )
    assert result.returncode == 0, result.stderr
    alone, job = (tmp_path / "out").read_text().split("\n", 1)
    assert alone == "0 1 0 1 0 1 1"
    hosts = {host["name"]: (host["slots"], host["local"]) for host in json.loads(job)["hosts"]}
    assert hosts == {"node1": (2, True), "node2": (1, False)}


def test_salloc_without_numbers_of_tasks(cluster: slurm.Cluster, environment: dict[str, str]) -> None:
    result = cluster.run(["salloc", "-N3", HOROVODRUN, "--dry-run", "true"], env=environment)
    assert result.returncode == 0, result.stderr
    assert [host["slots"] for host in json.loads(result.stdout)["hosts"]] == [1, 1, 1]


MPI = [("mpirun.openmpi", ["--oversubscribe"]), ("mpirun.mpich", [])]


def mpirun(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not installed")
    return path


@pytest.mark.parametrize(("name", "options"), MPI)
@pytest.mark.parametrize("through_a_script", [False, True])
def test_mpirun_on_one_host(
    name: str,
    options: list[str],
    through_a_script: bool,
    program: list[str],
    environment: dict[str, str],
    tmp_path: Path,
) -> None:
    """Two jobs side by side, which must not meet each other."""
    command = ["sh", "-c", '"$0" "$@"; exit $?', *program] if through_a_script else program
    line = [mpirun(name), *options, "-np", "3", *command]
    jobs = []
    for number in ("0", "1"):  # in folders of their own: Open MPI fails when two jobs create the common one at once
        (tmp_path / number).mkdir()
        own = {**environment, "TMPDIR": str(tmp_path / number)}
        jobs.append(subprocess.Popen(line, env=own, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE))
    for job in jobs:
        out, err = job.communicate(timeout=120)
        result = subprocess.CompletedProcess(line, job.returncode, out, err)
        assert places(result) == [[rank, 3, rank, 3, 0, 1, 6] for rank in range(3)]


def test_mpirun_on_several_hosts(make_bed: Callable[..., Bed], program: list[str], environment: dict[str, str]) -> None:
    """Without MPI it does not say where to meet; when told, it works."""
    bed = make_bed("hosta", "hostb", ssh=True)
    line = [mpirun("mpirun.openmpi"), "-np", "4", "-H", "hosta:2,hostb:2"]
    names = ["PYTHONPATH", "HOROVOD_START_TIMEOUT", "HOROVOD_CONTROLLER"]
    told = [*names, "HOROVOD_GLOO_RENDEZVOUS_ADDR", "HOROVOD_GLOO_RENDEZVOUS_PORT", "_HOROVOD_SECRET_KEY"]

    def start(names: list[str], env: dict[str, str]) -> subprocess.CompletedProcess[str]:
        exported = [word for name in names for word in ("-x", name)]
        command = [*line, *exported, *program]
        return bed["hosta"].run(command, env=env, capture_output=True, text=True, timeout=120)

    environment = {**environment, "HOROVOD_CONTROLLER": "gloo"}
    lost = start(names, environment)
    assert lost.returncode != 0
    assert "mpirun started 4 processes on several hosts, but gives no address for them to connect to" in lost.stderr
    meeting = {"HOROVOD_GLOO_RENDEZVOUS_ADDR": "hosta", "HOROVOD_GLOO_RENDEZVOUS_PORT": "23456"}
    found = start(told, {**with_key(environment), **meeting})
    assert places(found) == [[rank, 4, rank % 2, 2, rank // 2, 2, 10] for rank in range(4)]
