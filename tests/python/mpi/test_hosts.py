"""Two hosts over ssh: mpirun starts the ranks, MPI lets them meet, and MPI or the engine carries the data."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from bed import Bed
from flavours import Flavour, carried_by

PLACES = """
import os
import numpy as np, horovod.numpy as hvd
hvd.init()
total = hvd.allreduce(np.full(300000, hvd.rank() + 1.0), op=hvd.Sum)
rows = hvd.allgather(np.full((hvd.rank() + 1, 3), float(hvd.rank())))
assert rows.shape == (10, 3) and hvd.broadcast(np.array([hvd.rank()]), 3)[0] == 3
place = [hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size(), hvd.cross_rank(), hvd.cross_size(), int(total[-1])]
os.write(1, (" ".join(map(str, place)) + "\\n").encode())
hvd.shutdown()
"""


@pytest.mark.parametrize("data", ["mpi", "engine"])
def test_ranks_of_two_hosts_meet_over_mpi(
    flavour: Flavour, data: str, make_bed: Callable[..., Bed], tmp_path: Path
) -> None:
    bed = make_bed("hosta", "hostb", ssh=True)
    script = tmp_path / "places.py"
    script.write_text(PLACES)
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
        [*line, sys.executable, str(script)], env=env, capture_output=True, text=True, timeout=120, cwd=os.getcwd()
    )
    assert result.returncode == 0, result.stdout + result.stderr
    places = sorted([int(word) for word in each.split()] for each in result.stdout.splitlines())
    assert places == [[rank, 4, rank % 2, 2, rank // 2, 2, 10] for rank in range(4)]
