"""What happens when a rank dies, stops or meets the wrong MPI: always an end with a cause, never a silent hang."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from flavours import FLAVOURS, Flavour
from mpi_jobs import Job, finish, needs_mpi4py, start
from ranks import failure, say

hvd: Any = None
np: Any = None


def loop() -> None:
    """Allreduces until something happens; rank 1 says its pid once it is under way."""
    hvd.init()
    for step in range(10**9):
        try:
            hvd.allreduce(np.ones(100000), name="x")
        except Exception as error:
            say(f"rank {hvd.rank()}: {type(error).__name__}: {error}")
            raise
        if step == 10 and hvd.rank() == 1:
            say(f"pid {os.getpid()}")


def disturb(job: subprocess.Popen[str], number: signal.Signals) -> Job:
    """Send the signal to rank 1, in the midst of its work, and wait for the end of the job."""
    assert job.stdout is not None
    pid = 0
    try:
        pid = int(job.stdout.readline().removeprefix("pid "))
        os.kill(pid, number)
        return finish(job)
    finally:
        if pid and number == signal.SIGSTOP:  # unless mpirun has killed it already
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("data", ["mpi", "engine"])
def test_a_killed_rank_ends_the_job(flavour: Flavour, data: str) -> None:
    job = disturb(start(flavour, 3, loop, data=data), signal.SIGKILL)
    assert job.code != 0
    # A late mpirun may first see the end of other ranks, which have reported the reason.
    assert "signal 9" in job.report or re.search(r"rank \d \(.* is gone", job.report), job.report


@pytest.mark.parametrize("data", ["mpi", "engine"])
def test_those_that_mpirun_leaves_alone_see_the_recoverable_error(flavour: Flavour, data: str) -> None:
    """What the exit code is then, and whether a second one gets to the end of its words, is up to mpirun. That of MPICH
    sometimes ends all ranks in spite of its option, when it sees the connection of one close before its end."""
    told: list[str] = []
    for _ in range(8):
        job = disturb(start(flavour, 3, loop, data=data, options=flavour.survive), signal.SIGKILL)
        if told := [line for line in job.lines if "HorovodInternalError" in line]:
            break
    # Where MPI carries the data, it may have ended another one that was just reading memory of the first.
    lost = r"rank 1 \(.* is gone" if data == "engine" else r"rank \d \(.* is gone"
    assert told and all(re.search(lost, line) for line in told), job.report


def test_a_stopped_rank_is_noticed_after_the_time_limit(flavour: Flavour) -> None:
    env = {"HOROVOD_COLLECTIVE_TIMEOUT_SECONDS": "10"}
    job = disturb(start(flavour, 2, loop, data="mpi", env=env), signal.SIGSTOP)
    assert job.code != 0
    assert any("HorovodInternalError" in line and "HOROVOD_COLLECTIVE_TIMEOUT" in line for line in job.lines), (
        job.report
    )


@pytest.mark.parametrize("kind", ["allreduce", "reducescatter"])
def test_memory_that_one_rank_cannot_have_is_an_error_on_all(flavour: Flavour, kind: str, tmp_path: Path) -> None:
    def body(kind: str, door: str) -> None:
        import resource
        from pathlib import Path

        # There is memory for the results (none, or 128 MB), but not for 256 MB of tensors side by side.
        hvd.init()
        tensors = [np.ones((2, 1 << 20), dtype=np.float32) for _ in range(32)]
        call = hvd.grouped_allreduce_ if kind == "allreduce" else getattr(hvd, f"grouped_{kind}")
        if hvd.rank() == 1:
            size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (size + (160 << 20), resource.RLIM_INFINITY))
        rank = hvd.rank()
        say(failure(lambda: call(tensors)))
        os.close(os.open(door, os.O_WRONLY if rank == 0 else os.O_RDONLY))  # both have said it before one ends

    door = tmp_path / "door"
    os.mkfifo(door)
    env = {"HOROVOD_FUSION_THRESHOLD": str(1 << 30)}
    job = finish(start(flavour, 2, body, kind, str(door), data="mpi", env=env))
    told = [line for line in job.lines if line.startswith("HorovodInternalError") and "cannot allocate" in line]
    assert len(told) == 2, job.report


def come_late(level: str, comm: list[int] | None) -> None:
    """Rank 1 does not call hvd.init(), with or without MPI before it; the others wait for it and then give up."""
    if level == "in MPI":
        import ctypes

        from horovod._native import mpi

        mpi.use()
        assert ctypes.CDLL(os.environ["HOROVOD_MPI_LIBRARY"]).MPI_Init(None, None) == 0
    if int(os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ["PMI_RANK"]) == 1:
        signal.pause()
    say(failure(lambda: hvd.init(comm=comm)))
    os._exit(5)


SHORT = {"HOROVOD_START_TIMEOUT": "2"}


def test_a_rank_that_never_comes_is_an_error_with_a_deadline(flavour: Flavour) -> None:
    job = finish(start(flavour, 2, come_late, "in MPI", None, data="mpi", env=SHORT))
    assert job.code != 0
    assert any("not all ranks of MPI reached hvd.init() in time" in line for line in job.lines), job.report


@pytest.mark.parametrize(
    ("level", "comm", "call"),
    [("outside", None, "MPI_Init_thread"), ("in MPI", [0, 1], "MPI_Comm_create_group")],
)
def test_where_mpi_cannot_be_interrupted_the_process_ends_with_the_cause(
    flavour: Flavour, level: str, comm: list[int] | None, call: str
) -> None:
    job = finish(start(flavour, 2, come_late, level, comm, data="engine", env=SHORT))
    assert job.code != 0
    assert f"{call} is waiting for ranks of MPI that did not reach it in time (HOROVOD_START_TIMEOUT)" in job.errors, (
        job.report
    )


UNSUPPORTED = "Runtime environment uses unsupported PMI version PMIx"  # MPICH from 4.3 on, under another mpirun


def refused(flavour: Flavour, env: dict[str, str], size: int = 2, body: Any = None) -> str:
    """Run a job in which every rank must be refused; what the ranks were told, or MPI if it ended them itself."""

    def only_init() -> None:
        say(failure(hvd.init))

    job = finish(start(flavour, size, body or only_init, env=env))
    if job.code != 0 and UNSUPPORTED in job.errors:
        return UNSUPPORTED
    assert len(job.lines) == size and len(set(job.lines)) == 1, job.report
    return job.lines[0]


def other_kind(flavour: Flavour) -> Flavour:
    for other in FLAVOURS.values():
        if other.is_open_mpi != flavour.is_open_mpi and not other.why_not():
            return other
    pytest.skip("there is no other kind of MPI")


def test_the_plugin_of_the_other_mpi_is_told_from_its_mpirun(flavour: Flavour) -> None:
    other = other_kind(flavour)
    text = refused(flavour, {"HOROVOD_CONTROLLER": "mpi", "HOROVOD_MPI_LIBRARY": str(other.plugin)})
    if text != UNSUPPORTED:
        assert f"{other.version}" in text and "says that there are 1 processes, but 2 were started" in text


@needs_mpi4py
def test_mpi4py_of_the_other_mpi_is_a_clear_error(flavour: Flavour) -> None:
    def body() -> None:
        from mpi4py import MPI

        say(failure(lambda: hvd.init(comm=MPI.COMM_WORLD)))

    other = other_kind(flavour)
    text = refused(flavour, {"HOROVOD_MPI_LIBRARY": str(other.plugin)}, body=body)
    # By comparison; or, where mpi4py made the functions of its MPI known to all, because the plugin got hold of them.
    compared = f"mpi4py uses {flavour.version}" in text and f"but Horovod's plugin {other.version}" in text
    mixed = f"was compiled for {other.version}, but this process has already loaded {flavour.version}" in text
    assert text.startswith("ValueError: ") and (compared or mixed), text


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ({"HOROVOD_CONTROLLER": "smtp"}, "HOROVOD_CONTROLLER=smtp is not valid: it must be mpi or gloo"),
        ({"HOROVOD_CPU_OPERATIONS": "ccl"}, "HOROVOD_CPU_OPERATIONS=ccl is not valid: it must be mpi or gloo"),
        ({"HOROVOD_CONTROLLER": "MPI", "HOROVOD_MPI_LIBRARY": "/nowhere/x.so"}, "/nowhere/x.so"),
        ({"HOROVOD_CONTROLLER": "mpi", "HOROVOD_ELASTIC": "1"}, "an elastic job cannot use MPI"),
    ],
)
def test_settings_that_make_no_sense(env: dict[str, str], words: str) -> None:
    flavour = next((each for each in FLAVOURS.values() if not each.why_not()), None)
    if flavour is None:
        pytest.skip("no MPI is installed")
    text = refused(flavour, env, size=1)
    assert text.startswith("ValueError: ") and words in text


def test_a_library_that_is_no_plugin(flavour: Flavour) -> None:
    import horovod

    other = Path(horovod.__file__).parent / "lib" / "libhorovod.so"
    text = refused(flavour, {"HOROVOD_CONTROLLER": "mpi", "HOROVOD_MPI_LIBRARY": str(other)}, size=1)
    assert "is not an MPI plugin of this version of Horovod" in text and "--build-mpi" in text


def test_mpi_is_not_built_where_there_is_none(tmp_path: Path) -> None:
    code = (
        "import horovod.numpy as hvd\n"
        "print(hvd.mpi_built(), hvd.gloo_built())\n"
        "try: hvd.ProcessSet(7)\n"
        "except ValueError as error: print(error)\n"
    )
    env = {name: value for name, value in os.environ.items() if not name.startswith("HOROVOD_")}
    env |= {
        "PATH": str(tmp_path),
        "XDG_CACHE_HOME": str(tmp_path),
        "PYTHONPATH": str(Path(__file__).parents[3] / "python"),
    }
    out = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=60, check=True)
    first, second = out.stdout.splitlines()
    assert first == "False True"
    assert "libopenmpi-dev" in second and "conda" in second
