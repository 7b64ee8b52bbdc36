"""srun of a real Slurm starts the ranks, which meet over MPI; and the errors if that fails."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import slurm
from bed import Bed, Host, why_not
from flavours import Flavour, carried_by
from mpi_jobs import needs_mpi4py

PLACES = str(Path(__file__).with_name("places.py"))
INIT = """
import sys, horovod.numpy as hvd
comm = None
if sys.argv[1] == "mpi4py":
    from mpi4py import MPI
    comm = MPI.COMM_WORLD
hvd.init(comm=comm)
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[slurm.Cluster]:
    if reason := why_not() or slurm.why_not():
        pytest.skip(f"no cluster: {reason}")
    with Bed([Host("node1"), Host("node2")]) as bed:
        yield slurm.Cluster(bed, tmp_path_factory.mktemp("slurm"))


def surroundings(flavour: Flavour) -> dict[str, str]:
    return flavour.environment() | ({} if flavour.is_open_mpi else {"FI_PROVIDER": "tcp"})


@pytest.mark.parametrize("data", ["mpi", "engine", "nothing set"])
def test_the_ranks_of_srun_meet_over_mpi(
    flavour: Flavour, data: str, cluster: slurm.Cluster, tmp_path_factory: pytest.TempPathFactory
) -> None:
    env = surroundings(flavour)
    if data != "nothing set":
        env |= carried_by(data)
    elif not flavour.home:  # the plugin is built for the MPI that this kind of srun is for
        env = {name: value for name, value in env.items() if not name.startswith("HOROVOD_")}
        env |= {"XDG_CACHE_HOME": str(tmp_path_factory.mktemp("cache"))}
    line = ["srun", "-N2", "-n4", "--ntasks-per-node=2", f"--mpi={'pmix' if flavour.is_open_mpi else 'pmi2'}"]
    result = cluster.run([*line, sys.executable, PLACES], env=env)
    assert result.returncode == 0, result.stdout + result.stderr
    places = sorted([int(word) for word in each.split()] for each in result.stdout.splitlines())
    assert places == [[rank, 4, rank % 2, 2, rank // 2, 2, 10] for rank in range(4)]


@pytest.mark.parametrize("asked", ["variable", pytest.param("mpi4py", marks=needs_mpi4py)])
@pytest.mark.parametrize("hosts", ["-N1", "-N2"])
def test_two_that_are_alone_are_told_how_to_start(
    flavour: Flavour, asked: str, hosts: str, cluster: slurm.Cluster
) -> None:
    """Without --mpi=... most MPIs think that each process is alone: that must not become two worlds of one."""
    env = surroundings(flavour) | (carried_by("engine") if asked == "variable" else {})
    result = cluster.run(["srun", hosts, "-n2", "--mpi=none", sys.executable, "-c", INIT, asked], env=env)
    assert result.returncode != 0
    if flavour.name == "openmpi":  # it ends by itself, with its own words
        assert "SLURM's PMI" in result.stderr, result.stderr
        return
    said = "says that there are 1 processes, but 2 were started: by srun, which gave this MPI no information about"
    assert result.stderr.count(said) == 2, result.stderr
    assert f"Start them with srun --mpi={'pmix' if flavour.is_open_mpi else 'pmi2'}" in result.stderr
