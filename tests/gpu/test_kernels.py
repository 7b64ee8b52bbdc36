"""The kernels' text is what nvcc makes of their source, and ptxas assembles it for every GPU that it knows."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PTX = ROOT / "src" / "backends" / "nccl" / "kernels" / "kernels.ptx"


def test_the_text_is_generated_from_the_source(tmp_path: Path) -> None:
    if shutil.which("nvcc") is None:
        pytest.skip("skipped: there is no nvcc")
    made = tmp_path / "kernels.ptx"
    subprocess.run([ROOT / "tools" / "generate_kernels.sh", made], check=True)
    version = subprocess.run(["nvcc", "--version"], check=True, capture_output=True, text=True).stdout
    if "release 13.0" not in version:
        pytest.skip("skipped: another nvcc than 13.0 may write the same kernels in other words")
    assert made.read_text() == PTX.read_text()


def test_every_gpu_of_ptxas_takes_it(tmp_path: Path) -> None:
    if shutil.which("ptxas") is None or shutil.which("nvcc") is None:
        pytest.skip("skipped: there is no ptxas")
    assert PTX.read_text().startswith(".version 6.3\n.target sm_52\n")
    known = subprocess.run(["nvcc", "--list-gpu-code"], check=True, capture_output=True, text=True).stdout.split()
    assert known
    for name in known:
        subprocess.run(["ptxas", f"-arch={name}", "-o", tmp_path / "out", PTX], check=True)
