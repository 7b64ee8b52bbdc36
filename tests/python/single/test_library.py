"""Finding and loading the library, and what importing brings in."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from ranks import ROOT

import horovod
from horovod._native import abi
from horovod._native.library import Library, library, library_path


def python(source: str, **env: str) -> subprocess.CompletedProcess[str]:
    settings = {**os.environ, "PYTHONPATH": str(ROOT / "python"), **env}
    command = [sys.executable, "-c", source]
    return subprocess.run(command, env=settings, capture_output=True, text=True, timeout=60, check=False)


def test_the_library_is_beside_the_package_unless_the_environment_says_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("HOROVOD_LIBRARY", raising=False)
    assert library_path() == str(ROOT / "python" / "horovod" / "lib" / "libhorovod.so")
    monkeypatch.setenv("HOROVOD_LIBRARY", "/elsewhere/libhorovod.so")
    assert library_path() == "/elsewhere/libhorovod.so"


def test_a_missing_library_says_what_to_do() -> None:
    result = python("import horovod.numpy", HOROVOD_LIBRARY="/nowhere/libhorovod.so")
    assert result.returncode == 1
    assert "ImportError: cannot load Horovod's library: /nowhere/libhorovod.so" in result.stderr
    assert "run make, or reinstall" in result.stderr


def build(folder: Path, source: str) -> str:
    file = folder / "other.c"
    file.write_text(source)
    subprocess.run(["cc", "-shared", "-fPIC", str(file), "-o", str(folder / "other.so")], check=True)
    return str(folder / "other.so")


def test_another_binary_interface_is_refused(tmp_path: Path) -> None:
    functions = "".join(f"unsigned {name}(void) {{ return 0x00020000u; }}\n" for name in abi.PROTOTYPES)
    with pytest.raises(ImportError, match="version 2 of the binary interface, this package needs 1"):
        Library(build(tmp_path, functions))


def test_a_library_that_lacks_a_function_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ImportError, match="has no hvd_abi_version"):
        Library(build(tmp_path, "int nothing(void) { return 0; }\n"))


def test_the_package_and_the_library_have_the_same_version() -> None:
    assert library().hvd_version().decode() == horovod.__version__


def test_the_top_level_package_exports_the_version() -> None:
    assert "__version__" in horovod.__all__


@pytest.mark.parametrize(
    ("module", "others"),
    [
        ("horovod", "numpy torch tensorflow jax keras mxnet cloudpickle"),
        ("horovod.common.util", "numpy torch tensorflow jax keras mxnet"),
        ("horovod.common.elastic", "numpy torch tensorflow jax keras mxnet"),
        ("horovod._generic.objects", "numpy torch tensorflow jax keras mxnet"),
        ("horovod.numpy", "torch tensorflow jax keras mxnet ml_dtypes"),
    ],
)
def test_importing_brings_in_no_other_framework(module: str, others: str) -> None:
    result = python(f"import sys, {module}; print(sorted(set({others.split()!r}) & set(sys.modules)))")
    assert result.stdout == "[]\n", result.stderr


def test_only_the_c_interface_is_exported_and_only_libc_is_needed() -> None:
    listed = subprocess.run(["nm", "-D", "--defined-only", library_path()], capture_output=True, text=True, check=True)
    names = [line.split()[-1] for line in listed.stdout.splitlines()]
    assert "hvd_submit" in names
    assert [name for name in names if not name.startswith("hvd_")] == []
    needed = subprocess.run(["readelf", "-d", library_path()], capture_output=True, text=True, check=True).stdout
    libraries = [line.split("[")[1].rstrip("]") for line in needed.splitlines() if "(NEEDED)" in line]
    assert set(libraries) <= {"libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}


def test_the_table_of_knobs_in_the_documentation_is_current() -> None:
    command = [sys.executable, str(ROOT / "tools" / "knobs.py"), "--library", library_path()]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert printed == (ROOT / "docs" / "knobs.md").read_text()
