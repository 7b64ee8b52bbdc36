"""horovodrun --build-mpi: compiles the MPI library of the package once for each MPI, compiler and source."""

import concurrent.futures
import os
import pathlib
import subprocess
import sys

import mpi
import pytest


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("HOROVOD_MPIRUN", "HOROVOD_MPI_HOME"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "cache" / "horovod" / "mpi"


@pytest.fixture
def package(tmp_path, monkeypatch, cache):
    monkeypatch.setenv("HOROVOD_LIBRARY", mpi.make_package(tmp_path / "package"))
    return tmp_path / "package" / "mpi"


@pytest.fixture(params=mpi.KINDS)
def kind(request, monkeypatch, package):
    mpi.need(request.param)
    monkeypatch.setenv("HOROVOD_MPIRUN", f"mpirun.{request.param}")
    return request.param


@pytest.fixture
def counted(tmp_path, monkeypatch, kind):
    """An MPI whose compiler writes down each use."""
    folder = tmp_path / "mpi" / "bin"
    folder.mkdir(parents=True)
    (folder / "mpirun").symlink_to(f"/usr/bin/mpirun.{kind}")
    compiler = f'#!/bin/sh\n[ "$1" = -show ] || echo "$$" >> {tmp_path}/uses\nexec mpicc.{kind} "$@"\n'
    (folder / "mpicc").write_text(compiler)
    (folder / "mpicc").chmod(0o755)
    monkeypatch.delenv("HOROVOD_MPIRUN")
    monkeypatch.setenv("HOROVOD_MPI_HOME", str(folder.parent))
    return lambda: len((tmp_path / "uses").read_text().split()) if (tmp_path / "uses").exists() else 0


def built(result):
    assert result.returncode == 0, result.stderr.decode()
    return pathlib.Path(result.stdout.decode().splitlines()[-1])


def failed(result):
    """The one line that says why."""
    assert (result.returncode != 0, result.stdout) == (True, b"")
    text = result.stderr.decode()
    assert text.startswith("horovodrun: ")
    return text


def test_it_is_compiled_for_the_mpi_in_use(run, kind, cache):
    path = built(run("--build-mpi"))
    assert path.name == "libhorovod_mpi.so"
    assert path.parent.parent == cache
    assert path.parent.name.startswith({"openmpi": "open-mpi-", "mpich": "mpich-"}[kind])
    assert sorted(entry.name for entry in path.parent.iterdir()) == ["libhorovod_mpi.so", "lock"]
    # In another process: this one must not have two MPIs.
    code = f"import ctypes; f = ctypes.CDLL({str(path)!r}).hvd_test_flavour; f.restype = ctypes.c_char_p; print(f())"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert result.stdout == f"b'{kind}'\n", result.stderr


def test_the_second_call_only_prints_the_path(run, counted):
    first = built(run("--build-mpi"))
    assert (built(run("--build-mpi")), counted()) == (first, 1)


def test_many_that_ask_at_once_compile_once(run, counted):
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        paths = {built(result) for result in pool.map(lambda _: run("--build-mpi"), range(8))}
    assert (len(paths), counted()) == (1, 1)


def test_another_source_is_another_library(run, kind, package):
    first = built(run("--build-mpi"))
    (package / "hvd_mpi_shim.h").write_text("/* of the next version */")
    second = built(run("--build-mpi"))
    assert first != second
    assert first.exists()


def test_two_mpis_have_a_library_each(run, package, monkeypatch):
    paths = set()
    for kind in mpi.KINDS:
        mpi.need(kind)
        monkeypatch.setenv("HOROVOD_MPIRUN", f"mpirun.{kind}")
        paths.add(built(run("--build-mpi")))
    assert len(paths) == 2


@pytest.mark.parametrize(
    ("kind", "surroundings"),
    [("openmpi", {"OMPI_COMM_WORLD_RANK": "0"}), ("mpich", {"PMI_RANK": "0", "MPI_LOCALRANKID": "0"})],
)
def test_a_rank_gets_the_mpi_that_started_it(run, package, kind, surroundings, monkeypatch):
    mpi.need(kind)
    for name, value in surroundings.items():
        monkeypatch.setenv(name, value)
    assert built(run("--build-mpi")).parent.name.startswith({"openmpi": "open-mpi-", "mpich": "mpich-"}[kind])


def test_what_the_compiler_says_is_shown_and_nothing_is_left(run, kind, package, cache):
    (package / "hvd_mpi_shim.c").write_text("#error this does not compile\n")
    text = failed(run("--build-mpi"))
    assert f"mpicc.{kind} -O2 -fPIC -shared -o " in text
    assert "this does not compile" in text
    assert [path.name for path in cache.glob("*/*")] == ["lock"]


def test_without_mpi_the_packages_are_named(run, package, tmp_path):
    env = {**os.environ, "PATH": mpi.path_without_mpi(tmp_path / "bin")}
    text = failed(run("--build-mpi", env=env))
    assert "there is no mpicc in PATH" in text
    assert "libopenmpi-dev (Debian) or openmpi (conda), or libmpich-dev (Debian) or mpich (conda)" in text
    assert text.count("\n") == 1


def test_without_the_compiler_of_this_mpi_its_packages_are_named(run, package, tmp_path):
    path = mpi.path_without_mpi(tmp_path / "bin")
    (tmp_path / "bin" / "mpirun").write_text("#!/bin/sh\necho 'HYDRA build details:'; echo ' Version: 4.2'\n")
    (tmp_path / "bin" / "mpirun").chmod(0o755)
    text = failed(run("--build-mpi", env={**os.environ, "PATH": path}))
    assert "there is no mpicc of MPICH 4.2" in text
    assert "install libmpich-dev (Debian) or mpich (conda)" in text


def test_an_mpi_home_without_mpi_is_named(run, package, tmp_path, monkeypatch):
    monkeypatch.setenv("HOROVOD_MPI_HOME", str(tmp_path))
    assert f"there is no mpicc in {tmp_path}/bin (HOROVOD_MPI_HOME)" in failed(run("--build-mpi"))


def test_a_cache_that_cannot_be_written_is_named(run, kind, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert "XDG_CACHE_HOME can name another place" in failed(run("--build-mpi"))


def test_a_package_without_the_source_says_so(run, tmp_path, monkeypatch):
    monkeypatch.setenv("HOROVOD_LIBRARY", str(tmp_path / "libhorovod.so"))
    assert "has no source of the MPI library" in failed(run("--build-mpi"))


def test_check_build_tells_what_there_is(run, kind):
    name = {"openmpi": "Open MPI 4", "mpich": "MPICH 4"}[kind]
    before = run("--check-build").stdout.decode()
    assert before.count(f"    [X] MPI ({name}") == 2
    assert before.count(", built at first use)\n") == 2
    built(run("--build-mpi"))
    assert run("--check-build").stdout.decode().count(", built)\n") == 2
