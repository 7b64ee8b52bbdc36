"""horovod.run, mpi_run and js_run: mpirun or jsrun in the place of the built-in launcher."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

import horovod
from horovod.runner import js_run, mpi_run
from horovod.runner.common.util.settings import Settings


@pytest.fixture(params=["openmpi", "mpich"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """An MPI that only starts the ranks: they communicate without it."""
    if shutil.which(f"mpirun.{request.param}") is None:
        pytest.skip(f"there is no mpirun.{request.param}: tools/packages.sh mpi installs it")
    monkeypatch.setenv("HOROVOD_MPIRUN", f"mpirun.{request.param}")
    monkeypatch.setenv("HOROVOD_CONTROLLER", "gloo")
    return str(request.param)


def total() -> tuple[int, float]:
    import numpy as np

    import horovod.numpy as hvd

    hvd.init()
    return hvd.rank(), float(hvd.allreduce(np.array([hvd.rank() + 1.0]), op=hvd.Sum)[0])


def test_results_come_by_rank(kind: str) -> None:
    assert horovod.run(total, num_proc=3, use_mpi=True) == [(0, 6.0), (1, 6.0), (2, 6.0)]


def test_an_exception_is_that_of_its_rank(kind: str) -> None:
    def fail() -> None:
        rank = os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("PMI_RANK"))
        if rank == "1":
            raise KeyError("spoilt")

    with pytest.raises(RuntimeError, match=r"rank 1 on .* failed: KeyError: 'spoilt'"):
        horovod.run(fail, num_proc=2, use_mpi=True)


def test_arguments_for_mpirun_are_enough(kind: str) -> None:
    extra = "--report-pid -" if kind == "openmpi" else "-print-all-exitcodes"

    def started_by_mpirun() -> bool:
        return "OMPI_COMM_WORLD_RANK" in os.environ or "PMI_RANK" in os.environ

    assert horovod.run(started_by_mpirun, num_proc=2, mpi_args=extra) == [True, True]


def test_a_command_that_fails_names_mpirun_and_the_code(kind: str) -> None:
    settings = Settings(num_proc=2, hosts="localhost:2")
    mpi_run.mpi_run(settings, None, os.environ, ["true"])
    with pytest.raises(RuntimeError, match=r"^mpirun ended with exit code 7"):
        mpi_run.mpi_run(settings, None, os.environ, "exit 7")


def test_without_mpirun_it_is_a_wrong_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROVOD_MPIRUN", "/no/such/mpirun")
    with pytest.raises(ValueError, match="there is no /no/such/mpirun"):
        horovod.run(int, use_mpi=True)


def test_jsrun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(num_proc=1, hosts="localhost:1")
    monkeypatch.delenv("LSB_JOBID", raising=False)
    with pytest.raises(ValueError, match="LSB_JOBID is not set"):
        js_run.js_run(settings, None, os.environ, ["true"])
    monkeypatch.setenv("LSB_JOBID", "7")
    (tmp_path / "jsrun").write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/told\nexit 3\n')
    (tmp_path / "jsrun").chmod(0o755)
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "HOROVOD_CONTROLLER": "gloo"}
    with pytest.raises(RuntimeError, match=r"^jsrun ended with exit code 3"):
        js_run.js_run(settings, None, env, ["true"])
    words = (tmp_path / "told").read_text().split()
    assert (words[0], words[2:]) == ("--erf_input", ["true"])
