"""mpirun as tutorials have it, with nothing set: MPI is the controller where the plugin for it can be built."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from flavours import MPICH, OPENMPI, ROOT, Flavour
from mpi_jobs import needs_mpi4py, path_without, run
from ranks import failure, say

HOROVODRUN = str(ROOT / "python/horovod/bin/horovodrun")
hvd: Any = None
np: Any = None


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the plugins of this session are built, for those tests that do not need a cache of their own."""
    return tmp_path_factory.mktemp("cache")


def plain(flavour: Flavour, cache: Path) -> dict[str, str]:
    """Nothing of Horovod's; where two MPIs are installed side by side, the one that has mpirun is named."""
    unset = {name: "" for name in flavour.environment() if name.startswith("HOROVOD_")}
    return unset | {"XDG_CACHE_HOME": str(cache)} | (flavour.chosen() if flavour.home else {})


def sample(order: str) -> None:
    """The script that is known from mpi4py and Horovod; every rank says what it is."""
    if order == "mpi4py first":
        from mpi4py import MPI
    hvd.init()
    assert hvd.mpi_threads_supported()
    if order == "mpi4py after":
        from mpi4py import MPI
    if order != "no mpi4py":
        assert hvd.size() == MPI.COMM_WORLD.Get_size() and hvd.rank() == MPI.COMM_WORLD.Get_rank()
    assert hvd.mpi_enabled() and hvd.gloo_enabled()  # the engine carries the data
    assert hvd.allreduce(np.ones(5), op=hvd.Sum)[0] == hvd.size()
    say(f"{hvd.rank()} of {hvd.size()}")


@pytest.mark.parametrize(
    "order",
    [
        "no mpi4py",
        pytest.param("mpi4py first", marks=needs_mpi4py),
        pytest.param("mpi4py after", marks=needs_mpi4py),
    ],
)
def test_the_sample_that_everybody_knows(flavour: Flavour, order: str, cache: Path) -> None:
    job = run(flavour, 2, sample, order, env=plain(flavour, cache))
    assert job.lines == ["0 of 2", "1 of 2"] and job.errors.strip() == "", job.report


def test_one_rank_compiles_for_all_of_a_host(flavour: Flavour, tmp_path: Path) -> None:
    home, log = tmp_path / "home", tmp_path / "log"
    (home / "bin").mkdir(parents=True)
    (home / "bin/mpirun").symlink_to(flavour.program("mpirun") or "")
    mpicc = home / "bin/mpicc"
    mpicc.write_text(f'#!/bin/sh\n[ "$1" = -show ] || echo x >> {log}\nexec {flavour.program("mpicc")} "$@"\n')
    mpicc.chmod(0o755)
    env = plain(flavour, tmp_path / "cache") | {"HOROVOD_MPI_HOME": str(home)}
    run(flavour, 4, sample, "no mpi4py", env=env)
    assert log.read_text() == "x\n"
    files = [path.name for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    assert sorted(files) == ["libhorovod_mpi.so", "lock"]


def alone(path: str) -> None:
    """Works without MPI, and says why there is none."""
    os.environ["PATH"] = path  # only here: Open MPI's mpirun puts its own folder in front
    hvd.init()
    assert hvd.size() == 2 and hvd.gloo_enabled() and not hvd.mpi_enabled()
    assert hvd.allreduce(np.ones(5), op=hvd.Sum)[0] == 2
    assert "libhorovod_mpi" not in __import__("pathlib").Path("/proc/self/maps").read_text()
    say(failure(hvd.mpi_threads_supported))


def test_one_host_without_a_compiler_needs_no_mpi(flavour: Flavour, tmp_path: Path) -> None:
    env = plain(flavour, tmp_path / "cache") | {"HOROVOD_MPI_HOME": ""}
    lines = run(flavour, 2, alone, path_without(tmp_path / "bin", "mpi"), env=env).lines
    package = "libopenmpi-dev" if flavour.is_open_mpi else "libmpich-dev"
    assert len(lines) == 2 and all(line.startswith("ValueError: MPI is not used: ") for line in lines), lines
    assert all(package in line for line in lines), lines


def test_the_compiler_of_another_mpi_is_not_taken(flavour: Flavour, tmp_path: Path) -> None:
    """Debian's mpicc is that of Open MPI although mpirun.mpich has started the job, or the other way round."""
    other = "mpich" if flavour.is_open_mpi else "openmpi"
    if flavour.home or not (theirs := shutil.which(f"mpicc.{other}")):
        pytest.skip("there is no other MPI beside it")
    path = path_without(tmp_path / "bin", "mpicc")
    (Path(path) / "mpicc").symlink_to(theirs)
    lines = run(flavour, 2, alone, path, env=plain(flavour, tmp_path / "cache")).lines
    assert len(lines) == 2 and all("is not the mpicc of" in line for line in lines), lines


def test_ranks_decide_alike_when_one_has_no_plugin(flavour: Flavour, cache: Path) -> None:
    def body() -> None:
        rank = int(os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ["PMI_RANK"])
        if rank == 1:
            os.environ["HOROVOD_MPI_LIBRARY"] = "/nowhere/x.so"
        hvd.init()
        assert hvd.size() == 3 and not hvd.mpi_enabled()
        assert hvd.allreduce(np.ones(5), op=hvd.Sum)[0] == 3
        say(failure(hvd.mpi_threads_supported))
        hvd.shutdown()
        os.environ.pop("HOROVOD_MPI_LIBRARY", None)  # and now all have it
        hvd.init()
        say(f"{hvd.rank()} {hvd.mpi_threads_supported()}")

    lines = run(flavour, 3, body, env=plain(flavour, cache)).lines
    assert lines[:3] == ["0 True", "1 True", "2 True"]
    assert sum("/nowhere/x.so" in line for line in lines) == 1
    assert sum("rank 1 cannot use it; see its log" in line for line in lines) == 2, lines


@pytest.mark.parametrize("everywhere", [True, False])
def test_gloo_by_name_is_without_mpi(flavour: Flavour, everywhere: bool, cache: Path) -> None:
    """Even if only one rank sets it: then the others do not use MPI either."""

    def body(everywhere: bool) -> None:
        if everywhere or "1" in (os.environ.get("OMPI_COMM_WORLD_RANK"), os.environ.get("PMI_RANK")):
            os.environ["HOROVOD_CONTROLLER"] = "gloo"
        hvd.init()
        assert hvd.allreduce(np.ones(5), op=hvd.Sum)[0] == 2 and not hvd.mpi_enabled()
        if everywhere:
            assert "libhorovod_mpi" not in __import__("pathlib").Path("/proc/self/maps").read_text()
        say(failure(hvd.mpi_threads_supported))

    lines = run(flavour, 2, body, everywhere, env=plain(flavour, cache)).lines
    asked = "HOROVOD_CONTROLLER=gloo"
    assert sum(asked in line for line in lines) == (2 if everywhere else 1), lines


def test_a_list_of_ranks_is_a_world(flavour: Flavour, cache: Path) -> None:
    def body() -> None:
        hvd.init(comm=[2, 0])
        total = hvd.allreduce(np.ones(3), op=hvd.Sum)
        say(f"{hvd.rank()} of {hvd.size()}, {total[0]:g}, {hvd.mpi_enabled()}")

    assert run(flavour, 3, body, env=plain(flavour, cache)).lines == [
        "0 of 1, 1, True",
        "0 of 2, 2, True",
        "1 of 2, 2, True",
    ]


def test_horovodrun_inside_mpirun_does_without_mpi(flavour: Flavour, cache: Path) -> None:
    """What the outer mpirun has set does not concern the ranks of the inner job."""
    code = (
        "import os, numpy as np, horovod.numpy as hvd; hvd.init(); assert not hvd.mpi_enabled();"
        "os.write(1, f'<{hvd.rank()} of {hvd.size()}: {hvd.allreduce(np.ones(1), op=hvd.Sum)[0]:g}>\\n'.encode())"
    )
    command = flavour.command(1, [HOROVODRUN, "-np", "2", sys.executable, "-c", code])
    env = flavour.environment() | plain(flavour, cache)
    result = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stdout + result.stderr
    assert sorted(re.findall(r"<(\d of .*)>", result.stdout)) == ["0 of 2: 2", "1 of 2: 2"]


def test_a_second_program_of_a_rank_does_without_mpi(cache: Path) -> None:
    """A launcher serves one MPI program for each rank. MPICH's can be seen to have done so."""
    if reason := MPICH.why_not():
        pytest.skip(reason)
    code = (
        "import os, numpy as np, horovod.numpy as hvd; hvd.init(); "
        "os.write(1, f'{hvd.rank()} of {hvd.size()}: {hvd.allreduce(np.ones(1), op=hvd.Sum)[0]:g}\\n'.encode())"
    )
    command = MPICH.command(2, ["sh", "-c", '"$@" && exec "$@"', "sh", sys.executable, "-c", code])
    env = MPICH.environment() | plain(MPICH, cache)
    result = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stdout + result.stderr
    assert sorted(result.stdout.splitlines()) == ["0 of 2: 2"] * 2 + ["1 of 2: 2"] * 2


def test_a_connection_to_mpirun_that_was_closed_is_noticed(cache: Path) -> None:
    """MPICH has it as an open descriptor, which programs between mpirun and the script may close."""
    if reason := MPICH.why_not():
        pytest.skip(reason)

    def body() -> None:
        os.close(int(os.environ["PMI_FD"]))
        hvd.init()
        assert hvd.allreduce(np.ones(5), op=hvd.Sum)[0] == 2
        say(failure(hvd.mpi_threads_supported))

    lines = run(MPICH, 2, body, env=plain(MPICH, cache)).lines
    assert len(lines) == 2 and all("PMI_FD" in line for line in lines), lines


def cores_line(job_errors: str) -> str:
    """What the engine says about cores when a world starts."""
    found = re.findall(r"\d ranks? on \S+ (must share cores|can each have a core)", job_errors)
    return " ".join(sorted(set(found)))


@pytest.mark.parametrize(("ranks", "binding"), [(2, "core"), (2, "none"), (4, "none"), (1, "core")])
def test_ranks_that_mpirun_binds_to_cores_do_not_share_them(ranks: int, binding: str, cache: Path) -> None:
    """Open MPI binds small jobs to one core each by default; each rank then sees a single core."""
    if reason := OPENMPI.why_not():
        pytest.skip(reason)
    cores = len(os.sched_getaffinity(0))
    if binding == "core" and ranks > cores:
        pytest.skip(f"there are {cores} cores")
    code = "import horovod.numpy as hvd; hvd.init(); hvd.shutdown()"
    options = ["--oversubscribe", "--bind-to", binding, "-np", str(ranks)]
    command = [OPENMPI.program("mpirun") or "", *options, sys.executable, "-c", code]
    env = OPENMPI.environment() | plain(OPENMPI, cache) | {"HOROVOD_LOG_LEVEL": "info"}
    result = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stdout + result.stderr
    wanted = "must share cores" if ranks > cores else "can each have a core"
    assert cores_line(result.stdout + result.stderr) == wanted, result.stdout + result.stderr


@pytest.mark.parametrize("ranks", [1, 4])
def test_ranks_of_horovodrun_share_cores_when_there_are_more_of_them(ranks: int) -> None:
    code = "import horovod.numpy as hvd; hvd.init(); hvd.shutdown()"
    command = [HOROVODRUN, "-np", str(ranks), sys.executable, "-c", code]
    result = subprocess.run(
        command, env=os.environ | {"HOROVOD_LOG_LEVEL": "info"}, capture_output=True, text=True, timeout=120
    )
    assert result.returncode == 0, result.stdout + result.stderr
    wanted = "must share cores" if ranks > len(os.sched_getaffinity(0)) else "can each have a core"
    assert cores_line(result.stdout) == wanted, result.stdout + result.stderr
