"""Who starts and ends MPI, and what Horovod says about it."""

from __future__ import annotations

from typing import Any

import pytest
from flavours import Flavour
from mpi_jobs import needs_mpi4py, run
from ranks import failure, say

hvd: Any = None
np: Any = None
os: Any = None


@pytest.mark.parametrize("data", ["mpi", "engine"])
def test_mpi_is_the_controller_without_mpi4py(flavour: Flavour, data: str) -> None:
    def body(data: str) -> None:
        assert not hvd.mpi_enabled() and hvd.mpi_built() and not hvd.gloo_enabled()
        assert "ValueError" in failure(hvd.mpi_threads_supported)
        for _ in range(3):  # MPI stays; the world is formed again
            hvd.init()
            assert hvd.mpi_enabled() and hvd.gloo_enabled() == (data == "engine")
            assert hvd.allreduce(np.ones(5), op=hvd.Sum)[0] == hvd.size()
            place = (hvd.local_rank(), hvd.local_size(), hvd.cross_rank(), hvd.cross_size())
            assert place == (hvd.rank(), hvd.size(), 0, 1)
            hvd.shutdown()
            assert not hvd.mpi_enabled()
        assert "mpi4py" not in __import__("sys").modules
        say("done")

    assert run(flavour, 2, body, data, data=data).lines == ["done"] * 2


@pytest.mark.parametrize(("disabled", "expected"), [("1", "False"), ("0", "True")])
def test_threads_of_mpi_can_be_switched_off(flavour: Flavour, disabled: str, expected: str) -> None:
    def body() -> None:
        hvd.init()
        assert hvd.allreduce(np.ones(5), op=hvd.Sum)[0] == 2
        say(hvd.mpi_threads_supported())

    job = run(flavour, 2, body, data="mpi", env={"HOROVOD_MPI_THREADS_DISABLE": disabled})
    if disabled == "1" and flavour.is_open_mpi:
        assert set(job.lines) <= {"True", "False"}  # it gives more than it is asked for, as it may
    else:
        assert job.lines == [expected] * 2


@needs_mpi4py
def test_a_rank_that_ends_early_waits_for_the_connections_of_the_others(flavour: Flavour) -> None:
    """MPICH before 4.2 over TCP: ranks that block in MPI_Finalize do not answer one that comes later."""

    def body() -> None:
        import time

        hvd.init()
        assert hvd.allreduce(np.ones(5), op=hvd.Sum)[0] == 3
        if hvd.rank() == 2:  # answers the others, outside of MPI_Finalize
            from mpi4py import MPI

            end = time.monotonic() + 2
            while time.monotonic() < end:
                MPI.COMM_WORLD.Iprobe()
        say("done")

    assert run(flavour, 3, body, data="mpi").lines == ["done"] * 3


def test_a_rank_in_slow_motion_at_the_end(flavour: Flavour) -> None:
    """The same, when the others are inside MPI_Finalize long before this one, which answers them outside of it."""

    def body() -> None:
        import subprocess

        hvd.init()
        assert hvd.allreduce(np.ones(5), op=hvd.Sum)[0] == 3
        say("done")
        if hvd.rank() == 2:  # runs for 2 ms, stands still for 300 ms, until it is gone
            slow = f"while kill -STOP {os.getpid()}; do sleep 0.3; kill -CONT {os.getpid()}; sleep 0.002; done"
            subprocess.Popen(["sh", "-c", slow], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)

    for data in ("mpi", "engine"):
        assert run(flavour, 3, body, data=data).lines == ["done"] * 3


@needs_mpi4py
def test_a_script_may_start_and_end_mpi_itself(flavour: Flavour) -> None:
    def body() -> None:
        import mpi4py

        mpi4py.rc.initialize = mpi4py.rc.finalize = False
        from mpi4py import MPI

        MPI.Init_thread(MPI.THREAD_MULTIPLE)
        hvd.init(comm=MPI.COMM_WORLD)
        assert hvd.allreduce(np.ones(5), op=hvd.Sum)[0] == 2
        hvd.shutdown()
        MPI.Finalize()
        say(failure(hvd.init))

    lines = run(flavour, 2, body, data="mpi").lines
    assert len(lines) == 2 and all("MPI has been finalised in this process" in line for line in lines), lines


@needs_mpi4py
def test_mpi4py_after_horovod_has_started_mpi(flavour: Flavour) -> None:
    def body() -> None:
        hvd.init()
        from mpi4py import MPI

        assert MPI.COMM_WORLD.allreduce(hvd.rank()) == 1
        assert hvd.allreduce(np.ones(5), op=hvd.Sum)[0] == 2
        say("done")  # at the end Horovod ends MPI, and mpi4py sees that it is

    job = run(flavour, 2, body, data="mpi")
    assert job.lines == ["done"] * 2 and job.errors.strip() == "", job.report


@needs_mpi4py
def test_mpi_ended_too_early_is_an_error_and_no_crash(flavour: Flavour) -> None:
    def body() -> None:
        from mpi4py import MPI

        hvd.init(comm=MPI.COMM_WORLD)
        assert hvd.allreduce(np.ones(5), op=hvd.Sum)[0] == 2
        hvd.barrier()
        MPI.Finalize()
        say(failure(lambda: hvd.allreduce(np.ones(5), op=hvd.Sum)))

    lines = run(flavour, 2, body, data="mpi").lines
    assert len(lines) == 2
    for line in lines:
        assert line.startswith("HorovodInternalError: ") and "finalised MPI" in line


def test_a_forked_child_leaves_mpi_alone(flavour: Flavour) -> None:
    def body() -> None:
        hvd.init()
        child = os.fork()
        if child == 0:
            assert "fork" in failure(lambda: hvd.allreduce(np.ones(5)))
            __import__("atexit")._run_exitfuncs()  # all that Horovod does at the end of a process
            os._exit(3)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
        assert hvd.allreduce(np.ones(5), op=hvd.Sum)[0] == 2
        say("done")

    assert run(flavour, 2, body, data="mpi").lines == ["done"] * 2


def test_a_timeline_names_mpi(flavour: Flavour, tmp_path: Any) -> None:
    def body() -> None:
        hvd.init()
        hvd.allreduce(np.ones(5), name="x")
        hvd.broadcast(np.ones(5), 0, name="y")
        hvd.barrier()
        hvd.shutdown()

    run(flavour, 2, body, data="mpi", env={"HOROVOD_TIMELINE": str(tmp_path / "t.json")})
    written = (tmp_path / "t.json").read_text()
    assert "MPI_ALLREDUCE" in written and "MPI_BCAST" in written
