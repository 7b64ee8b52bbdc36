"""The examples pytorch_lightning_mnist.py and pytorch_transformer.py, as a user runs them with two ranks."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from ranks import ROOT


def run(horovodrun: str, folder: Path, example: str, *arguments: str) -> str:
    """What rank 0 says; the others say nothing."""
    command = [horovodrun, "-np", "2", sys.executable, str(ROOT / "examples" / example), *arguments]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}/python", "OMP_NUM_THREADS": "1"}
    result = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stdout + result.stderr
    assert all(line.startswith("[0]<stdout>:") for line in result.stdout.splitlines()), result.stdout
    return result.stdout


def test_lightning_learns_the_digits(horovodrun: str, tmp_path: Path) -> None:
    said = run(horovodrun, tmp_path, "pytorch_lightning_mnist.py", "--epochs", "3")
    found = re.search(r"validation accuracy ([\d.]+) with 2 ranks", said)
    assert found and float(found[1]) > 0.85, said
    assert not list(tmp_path.iterdir()), "nothing is left in the user's folder"


def test_the_transformer_learns_with_int8(horovodrun: str, tmp_path: Path) -> None:
    said = run(horovodrun, tmp_path, "pytorch_transformer.py", "--steps", "80", "--compression", "int8")
    found = re.search(r"([\d.]+) of the letters are right, with 2 ranks and compression int8", said)
    assert found and float(found[1]) > 0.9, said


def test_the_transformer_runs_in_float16_with_its_scaler(horovodrun: str, tmp_path: Path) -> None:
    said = run(horovodrun, tmp_path, "pytorch_transformer.py", "--steps", "25", "--dtype", "float16")
    found = re.search(r"step 25  loss ([\d.]+)", said)
    assert found and float(found[1]) < 3.5, said  # it begins above; slow on a CPU, so not much further
