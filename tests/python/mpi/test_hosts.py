"""Two hosts over ssh: mpirun starts the ranks, MPI lets them meet, and MPI or the engine carries the data."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from bed import Bed
from flavours import Flavour, carried_by

PLACES = str(Path(__file__).with_name("places.py"))


@pytest.mark.parametrize("data", ["mpi", "engine"])
def test_ranks_of_two_hosts_meet_over_mpi(flavour: Flavour, data: str, make_bed: Callable[..., Bed]) -> None:
    bed = make_bed("hosta", "hostb", ssh=True)
    env = flavour.environment() | carried_by(data)
    hosts = "hosta:2,hostb:2"
    line = [
        flavour.program("mpirun") or "",
        *flavour.options,
        "-np",
        "4",
        "-H" if flavour.is_open_mpi else "-hosts",
        hosts,
    ]
    if flavour.is_open_mpi:
        names = ["PYTHONPATH", *(name for name in env if name.startswith("HOROVOD_"))]
        line += [word for name in names for word in ("-x", name)]
    else:
        env = {name: value for name, value in env.items() if not name.startswith("XDG")} | {"FI_PROVIDER": "tcp"}
    result = bed["hosta"].run(
        [*line, sys.executable, PLACES], env=env, capture_output=True, text=True, timeout=120, cwd=os.getcwd()
    )
    assert result.returncode == 0, result.stdout + result.stderr
    places = sorted([int(word) for word in each.split()] for each in result.stdout.splitlines())
    assert places == [[rank, 4, rank % 2, 2, rank // 2, 2, 10] for rank in range(4)]
