"""Two hosts over ssh: mpirun starts the ranks, MPI lets them meet, and MPI or the engine carries the data."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from bed import Bed
from flavours import Flavour, carried_by
from mpi_jobs import path_without

PLACES = str(Path(__file__).with_name("places.py"))


@pytest.mark.parametrize("data", ["mpi", "engine"])
def test_ranks_of_two_hosts_meet_over_mpi(flavour: Flavour, data: str, make_bed: Callable[..., Bed]) -> None:
    bed = make_bed("hosta", "hostb", ssh=True)
    result = run(flavour, bed, 4, [sys.executable, PLACES], flavour.environment() | carried_by(data))
    assert places(result) == [[rank, 4, rank % 2, 2, rank // 2, 2, 10] for rank in range(4)]


def test_with_nothing_set_ranks_of_two_hosts_meet_over_mpi(
    flavour: Flavour, make_bed: Callable[..., Bed], tmp_path: Path
) -> None:
    """As tutorials have it. Where one host has no compiler, its ranks say which package is missing; none hangs."""
    bed = make_bed("hosta", "hostb", ssh=True)
    env = {name: value for name, value in flavour.environment().items() if not name.startswith("HOROVOD_")}
    env |= {"XDG_CACHE_HOME": str(tmp_path / "cache")} | (flavour.chosen() if flavour.home else {})
    result = run(flavour, bed, 4, [sys.executable, PLACES], env)
    assert places(result) == [[rank, 4, rank % 2, 2, rank // 2, 2, 10] for rank in range(4)]
    script = f'[ "$(hostname)" = hosta ] || PATH={path_without(tmp_path / "bin", "mpi")}; exec "$@"'
    lost = run(
        flavour, bed, 3, ["sh", "-c", script, "sh", sys.executable, PLACES], env | {"HOROVOD_START_TIMEOUT": "10"}
    )
    assert lost.returncode != 0
    assert "the ranks of several hosts that mpirun or srun has started meet over MPI, but" in lost.stderr, lost.stderr
    assert ("libopenmpi-dev" if flavour.is_open_mpi else "libmpich-dev") in lost.stderr


def run(
    flavour: Flavour, bed: Bed, ranks: int, command: list[str], env: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    hosts = ["-H" if flavour.is_open_mpi else "-hosts", "hosta:2,hostb:2"]
    line = [flavour.program("mpirun") or "", *flavour.options, "-np", str(ranks), *hosts]
    if flavour.is_open_mpi:
        names = [name for name in env if name.startswith(("HOROVOD_", "PYTHONPATH", "XDG_CACHE"))]
        line += [word for name in names for word in ("-x", name)]
    else:
        kept = {name: value for name, value in env.items() if not name.startswith("XDG") or "CACHE" in name}
        env = kept | {"FI_PROVIDER": "tcp"}
    return bed["hosta"].run([*line, *command], env=env, capture_output=True, text=True, timeout=120, cwd=os.getcwd())


def places(result: subprocess.CompletedProcess[str]) -> list[list[int]]:
    assert result.returncode == 0, result.stdout + result.stderr
    return sorted([int(word) for word in each.split()] for each in result.stdout.splitlines())
