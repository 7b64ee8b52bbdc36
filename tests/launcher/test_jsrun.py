"""Jobs that jsrun starts in LSF, with a stand-in for it."""

import json
import pathlib
import re
import sys

import pytest
from test_mpirun import FAILS, REDUCE, summary_of

FAKE_JSRUN = pathlib.Path(__file__).parent / "fake_jsrun.py"


@pytest.fixture
def lsf(tmp_path, monkeypatch):
    """Inside a job of LSF on this machine, with jsrun; returns the arguments of jsrun."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "jsrun").write_text(f'#!/bin/sh\nexec {sys.executable} {FAKE_JSRUN} "$@"\n')
    (folder / "jsrun").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    monkeypatch.setenv("FAKE_JSRUN", str(tmp_path / "told"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("LSB_JOBID", "7")
    monkeypatch.setenv("LSB_MCPU_HOSTS", "localhost 3")
    monkeypatch.setenv("HOROVOD_CONTROLLER", "gloo")  # without a plugin
    yield lambda: json.loads((tmp_path / "told").read_text())
    assert list((tmp_path / "tmp").glob("horovodrun*")) == []


def test_a_world_forms(run, python, lsf):
    result = run("--jsrun", *python(REDUCE))
    assert result.returncode == 0, result.stderr.decode()
    assert sorted(result.stdout.decode().splitlines()) == [f"rank {rank} of 3: 6" for rank in range(3)]
    assert list(lsf()["options"]) == ["--erf_input"]
    assert lsf()["rank_file"].count("hostname: localhost;") == 3


def test_the_rank_that_failed_is_named(run, python, lsf):
    result = run("--jsrun", *python(FAILS.format(act='raise ValueError("bad batch")')))
    assert re.match(r"horovodrun: rank 1 on \S+ raised ValueError: bad batch: pid \d+\n", summary_of(result)), (
        result.stderr.decode()
    )


def test_arguments_for_mpi_are_passed_on(run, lsf):
    command = ["--jsrun", "--mpi-args=-mca a b", "--tcp", "sh", "-c", "echo $NCCL_IB_DISABLE; exit 4"]
    result = run("-np", "1", *command)
    assert (result.returncode, result.stdout) == (4, b"1\n")
    assert lsf()["options"]["--smpiargs"] == "-mca a b -tcp"
    assert lsf()["command"] == command[3:]


def test_binding_args_replace_the_rank_file(run, lsf):
    launcher = json.loads(run("--dry-run", "--jsrun", "--binding-args=--bind packed:4", "true").stdout)["launcher"]
    assert launcher["command"] == ["jsrun", "--bind", "packed:4", "true"]


def test_hosts_of_the_allocation(run, lsf, monkeypatch):
    monkeypatch.setenv("LSB_MCPU_HOSTS", "batch 1 farhost1 2 farhost2 2")
    monkeypatch.setenv("CSM_ALLOCATION_ID", "3")
    launcher = json.loads(run("--dry-run", "--jsrun", "true").stdout)["launcher"]
    assert [line.split("hostname: ")[1].split(";")[0] for line in launcher["rank_file"].splitlines()[3:]] == [
        "farhost1",
        "farhost1",
        "farhost2",
        "farhost2",
    ]
    assert launcher["variables"]["HOROVOD_GLOO_RENDEZVOUS_ADDR"] == "farhost1"


def test_without_lsf(run, lsf, monkeypatch):
    monkeypatch.delenv("LSB_JOBID")
    result = run("-np", "1", "--jsrun", "true")
    assert result.returncode == 2
    assert b"--jsrun works inside a job of LSF only (LSB_JOBID is not set)" in result.stderr


def test_without_jsrun(run, monkeypatch):
    monkeypatch.setenv("LSB_JOBID", "7")
    result = run("-np", "1", "--jsrun", "true")
    assert result.returncode == 2
    assert b"--jsrun: there is no jsrun in PATH" in result.stderr
