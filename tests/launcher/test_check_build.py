"""horovodrun --check-build: the known layout, versions, JSON; and that nothing heavy is imported for it."""

import json
import os
import shutil
import subprocess
import sys

import pytest

LAYOUT = """\
Horovod v1.0.0:

Available Frameworks:
    [ ] TensorFlow
    [X] PyTorch 2.9.1
    [ ] MXNet (1.9 is installed; there is no adapter for it yet)
    [ ] JAX
    [X] NumPy 7.0

Available Controllers:
    [ ] MPI
    [X] Gloo

Available Tensor Operations:
    [ ] NCCL
    [ ] DDL
    [ ] CCL
    [ ] MPI
    [X] Gloo
"""


@pytest.fixture
def installed(tmp_path):
    """An environment with packages that must not be imported."""
    site = tmp_path / "site"
    for module, version in (("torch", "2.9.1"), ("mxnet", "1.9"), ("numpy", "7.0")):
        (site / module).mkdir(parents=True)
        (site / module / "__init__.py").write_text("raise SystemExit('imported')")
        (site / f"{module}-{version}.dist-info").mkdir()
        (site / f"{module}-{version}.dist-info" / "METADATA").write_text(f"Name: {module}\nVersion: {version}\n")
    for adapter in ("torch", "numpy", "jax"):
        (site / "horovod" / adapter).mkdir(parents=True)
        (site / "horovod" / adapter / "__init__.py").write_text("raise SystemExit('imported')")
    (site / "horovod" / "__init__.py").write_text("raise SystemExit('imported')")
    return site


@pytest.fixture
def program(horovodrun, tmp_path):
    """horovodrun in a folder of its own, and a Python beside it, if a script for it is given."""

    def make(python=None):
        folder = tmp_path / "bin"
        folder.mkdir()
        os.symlink(horovodrun, folder / "horovodrun")
        if python:
            (folder / "python3").write_text(f"#!/bin/sh\n{python}\n")
            (folder / "python3").chmod(0o755)
        return folder

    return make


@pytest.fixture
def check(program, installed, tmp_path):
    def call(*options, python=f'exec {sys.executable} -S "$@"', path="/nowhere", mpi=None):
        folder = program(python)
        if mpi:
            (folder / "mpirun").write_text(f"#!/bin/sh\necho '{mpi}'\n")
            (folder / "mpirun").chmod(0o755)
        (tmp_path / "work").mkdir()
        (tmp_path / "work" / "json.py").write_text("raise SystemExit('the folder we are in was searched')")
        env = {"PATH": f"{folder}:{path}", "PYTHONPATH": str(installed)}
        command = [shutil.which("horovodrun", path=str(folder)), *options]
        return subprocess.run(command, env=env, cwd=tmp_path / "work", capture_output=True, text=True, timeout=60)

    return call


@pytest.mark.parametrize("option", ["-cb", "--check-build"])
def test_layout(check, option):
    result = check(option)
    assert (result.returncode, result.stdout, result.stderr) == (0, LAYOUT, "")


def test_verbose_starts_with_a_blank_line(check):
    assert check("--verbose", "-cb").stdout == "\n" + LAYOUT


def test_json(check):
    report = json.loads(check("-cb", "--json").stdout)
    assert report["version"] == "1.0.0"
    assert report["python"]["version"] == sys.version.split()[0]
    assert report["frameworks"] == [
        {"name": "TensorFlow", "available": False, "version": None, "adapter": False},
        {"name": "PyTorch", "available": True, "version": "2.9.1", "adapter": True},
        {"name": "MXNet", "available": False, "version": "1.9", "adapter": False},
        {"name": "JAX", "available": False, "version": None, "adapter": True},
        {"name": "NumPy", "available": True, "version": "7.0", "adapter": True},
    ]
    assert [part["name"] for part in report["controllers"] if part["available"]] == ["Gloo"]
    assert [part["name"] for part in report["operations"]] == ["NCCL", "DDL", "CCL", "MPI", "Gloo"]


def test_mpi_without_a_compiler_is_not_available(check, tmp_path, monkeypatch):
    result = check("-cb", mpi="mpirun (Open MPI) 4.1.4")
    assert result.returncode == 0
    assert result.stdout.count("[ ] MPI") == 2
    assert "    [ ] MPI (Open MPI 4.1.4; " in result.stdout


@pytest.mark.parametrize("python", ["exit 3", "echo nonsense", "echo 5", "echo '{}'", "kill -9 $$"])
def test_a_python_that_cannot_say(check, python):
    result = check("-cb", python=python)
    assert result.returncode == 0
    assert "could not list the installed frameworks" in result.stderr
    assert "[X] PyTorch" not in result.stdout
    assert "[X] Gloo" in result.stdout


def test_no_python_at_all(check, tmp_path):
    result = check("-cb", python=None)
    assert result.returncode == 0
    assert result.stderr.startswith("horovodrun: no Python beside horovodrun or in PATH")
    assert "[ ] NumPy\n" in result.stdout


def test_a_python_without_horovod(check, installed):
    shutil.rmtree(installed / "horovod")
    result = check("-cb")
    assert "does not find the package horovod" in result.stderr
    assert "[ ] PyTorch (2.9.1 is installed" in result.stdout
