"""examples/horovod_run.ipynb, executed as Jupyter does it: on one machine, and with ranks on two hosts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bed import Bed

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOK = ROOT / "examples/horovod_run.ipynb"
HERE = "hosts = None"
DEADLINE = 120

# A program of its own, because the kernel, too, has to run on the host. Prints what appears below each cell.
EXECUTE = """
import json, sys
import nbclient, nbformat
notebook = nbformat.reads(sys.stdin.read(), as_version=4)
nbclient.NotebookClient(notebook, timeout=100, kernel_name="python3").execute()
shown = [[o.get("text") or o["data"]["text/plain"] for o in cell.get("outputs", [])] for cell in notebook.cells]
print(json.dumps(["".join(texts) for texts in shown]))
"""
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    folders = ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR")
    own = {name: str(tmp_path / name.lower()) for name in folders}
    return {**os.environ, **own, "PYTHONPATH": str(ROOT / "python")}


def below(cells: list[str], code: str) -> str:
    """What appeared below the cell that has this code."""
    notebook = json.loads(NOTEBOOK.read_text())
    (index,) = [number for number, cell in enumerate(notebook["cells"]) if code in "".join(cell["source"])]
    return cells[index]


def execute(run: Run, text: str, **options: Any) -> list[str]:
    result = run(
        [sys.executable, "-c", EXECUTE], input=text, capture_output=True, text=True, timeout=DEADLINE, **options
    )
    assert result.returncode == 0, result.stderr
    cells: list[str] = json.loads(result.stdout)
    return cells


def test_on_this_machine(environment: dict[str, str]) -> None:
    cells = execute(subprocess.run, NOTEBOOK.read_text(), env=environment)
    learnt = below(cells, HERE)
    assert "[0]<stdout>:epoch 200: accuracy 0.9" in learnt
    assert "{'rank': 1, 'images': 720, 'accuracy': 0.9" in learnt
    assert "rank 1 on localhost failed: ValueError: no data on this rank" in below(cells, "def fail").splitlines()


def test_on_two_hosts(make_bed: Callable[..., Bed], environment: dict[str, str]) -> None:
    bed = make_bed("node1", "node2", ssh=True)
    text = NOTEBOOK.read_text()
    assert HERE in text
    text = text.replace(HERE, r"hosts = \"node1:1,node2:1\"")
    cells = execute(bed["node1"].run, text, env=environment)
    assert "'accuracy': 0.9" in below(cells, HERE)
    assert "rank 1 on node2 failed: ValueError: no data on this rank" in below(cells, "def fail").splitlines()
