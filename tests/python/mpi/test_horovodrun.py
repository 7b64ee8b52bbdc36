"""horovodrun --mpi with the mpirun of each MPI, as users call it: it compiles the plugin, and MPI carries the data."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from flavours import ROOT, Flavour

HOROVODRUN = str(ROOT / "python/horovod/bin/horovodrun")
REDUCE = """
import os, numpy as np, horovod.numpy as hvd
hvd.init()
total = hvd.allreduce(np.array([hvd.rank() + 1.0]), op=hvd.Sum)
assert hvd.mpi_enabled() and not hvd.gloo_enabled()
os.write(1, f"<rank {hvd.rank()} of {hvd.size()}: {int(total[0])}, {os.environ['OF_THE_USER']}>\\n".encode())
"""


@pytest.mark.parametrize("options", [[], ["--output-filename", "out"]])
def test_a_job_of_horovodrun(flavour: Flavour, options: list[str], tmp_path: Path) -> None:
    env = {name: value for name, value in flavour.environment().items() if not name.startswith("HOROVOD_")}
    env |= flavour.chosen() | {"XDG_CACHE_HOME": str(tmp_path), "OF_THE_USER": "a 'b';$c"}
    command = [HOROVODRUN, "-np", "3", "--mpi", "--verbose", *options, sys.executable, "-c", REDUCE]
    result = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stdout + result.stderr
    name = "Open MPI" if flavour.is_open_mpi else "MPICH"
    assert f"note: built Horovod's MPI library for {name}" in result.stderr
    said = result.stdout
    if options:
        files = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
        said = "".join(path.read_text() for path in files)
        assert len(files) >= 3, files
    assert sorted(re.findall(r"<(rank \d of .*)>", said)) == [f"rank {rank} of 3: 6, a 'b';$c" for rank in range(3)], (
        result
    )
