"""Every command that the pages show is run, unless the page says why not (blocks.py has the marks).

Each page has a folder with what its commands may expect: a train.py, a discovery script, the repository's folders.
Where hosts can be made the commands run on node1, from which node2 is reached by ssh.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from bed import Bed
from blocks import PAGES, ROOT, Block, blocks

DEADLINE = 300  # seconds for one block, which may hold many jobs
TRAIN = """
import numpy as np, horovod.numpy as hvd
hvd.init()
total = hvd.allreduce(np.array([hvd.rank() + 1.0]), name="total", op=hvd.Sum)
assert total[0] == hvd.size() * (hvd.size() + 1) / 2
hvd.shutdown()
"""
DISCOVER = "#!/bin/sh\necho localhost:8\n"
LINKS = (".venv", "benchmarks", "docs", "examples", "include", "python", "tests", "tools")


def shell_blocks(page: Path) -> list[Block]:
    return [block for block in blocks(page) if block.language == "sh"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "hosts").write_text("node1 slots=1\nnode2 slots=1\n")
    for name in ("discover.sh", "hosts.sh"):
        (tmp_path / name).write_text(DISCOVER)
        (tmp_path / name).chmod(0o755)
    for name in LINKS:
        if (ROOT / name).exists():
            (tmp_path / name).symlink_to(ROOT / name)
    return tmp_path


def environment() -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if "HOROVOD_" not in name}
    path = f"{Path(sys.executable).parent}:{inherited['PATH']}"
    return {**inherited, "PATH": path, "PYTHONPATH": str(ROOT / "python"), "OMP_NUM_THREADS": "1"}


def run(block: Block, folder: Path, nodes: Bed | str) -> str:
    start = subprocess.Popen if isinstance(nodes, str) else nodes["node1"].popen
    process = start(
        ["bash", "-euo", "pipefail", "-c", block.text],
        cwd=folder,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=DEADLINE)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        pytest.fail(f"{block.place} took more than {DEADLINE} s:\n{block.text}\n{output}")
    assert process.returncode == 0, f"{block.place}: exit code {process.returncode}\n{block.text}\n{output}"
    return str(output)


@pytest.mark.parametrize("page", [page for page in PAGES if any(blocks(page))], ids=lambda page: page.name)
def test_commands_work(page: Path, folder: Path, nodes: Bed | str) -> None:
    without: list[str] = []
    output = ""
    for block in blocks(page):
        if name := block.told("file"):
            (folder / name).write_text(block.text)
        elif block.note == "output":
            assert set(block.text.splitlines()) <= set(output.splitlines()), f"{block.place}: the output is {output}"
        elif block.language != "sh" or block.told("not run"):
            continue
        elif isinstance(nodes, str) and re.search(r"\bnode\d", block.text):
            without.append(block.place)
        else:
            output = run(block, folder, nodes)
    if without:
        pytest.skip(f"no hosts ({nodes}) for {', '.join(without)}")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_notes_and_code_can_be_read(page: Path) -> None:
    for block in blocks(page):
        known = block.note in ("", "output") or block.told("file") or block.told("not run")
        assert known, f"{block.place}: what does {block.note!r} mean?"
        if block.language == "python":
            compile(block.text, block.place, "exec")
