"""horovod.run in a notebook: functions of cells, output in the cell, the stop button."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from callers import DEADLINE, Watched
from jupyter_client.manager import KernelManager


class Notebook:
    """A kernel, driven as a notebook does it."""

    def __init__(self) -> None:
        self.manager = KernelManager()
        self.manager.start_kernel(env=dict(os.environ))
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=DEADLINE)

    def start(self, code: str) -> str:
        return str(self.client.execute(code))

    def messages(self, cell: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """What the kernel publishes for the cell, until it is idle again."""
        end = time.monotonic() + DEADLINE
        while True:
            message = self.client.get_iopub_msg(timeout=max(0.1, end - time.monotonic()))
            if message["parent_header"].get("msg_id") != cell:
                continue
            yield message["msg_type"], message["content"]
            if message["msg_type"] == "status" and message["content"]["execution_state"] == "idle":
                return

    def run(self, code: str) -> dict[str, str]:
        """Run a cell to its end; what appears below it, by kind."""
        shown = {"stdout": "", "stderr": "", "result": "", "error": ""}
        for kind, content in self.messages(self.start(code)):
            if kind == "stream":
                shown[content["name"]] += content["text"]
            elif kind == "execute_result":
                shown["result"] = content["data"]["text/plain"]
            elif kind == "error":
                shown["error"] = f"{content['ename']}: {content['evalue']}"
        return shown

    def close(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)


@pytest.fixture
def notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Notebook]:
    for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # set by the user, so the launcher prints no note about it
    each = Notebook()
    yield each
    each.close()


CELL = """
import horovod

class Config:
    scale = 10

def train(offset):
    import os, sys
    print("training", os.environ["HOROVOD_RANK"])
    print("a warning", file=sys.stderr)
    return Config.scale * int(os.environ["HOROVOD_RANK"]) + offset
"""


def test_function_of_a_cell(notebook: Notebook) -> None:
    assert notebook.run(CELL)["error"] == ""
    shown = notebook.run("horovod.run(train, (5,), num_proc=2)")
    assert shown["result"] == "[5, 15]"
    assert sorted(shown["stdout"].splitlines()) == ["[0]<stdout>:training 0", "[1]<stdout>:training 1"]
    assert sorted(shown["stderr"].splitlines()) == ["[0]<stderr>:a warning", "[1]<stderr>:a warning"]


def test_error_of_a_worker_in_a_cell(notebook: Notebook) -> None:
    shown = notebook.run("import horovod\ndef fail():\n    raise ValueError('in a cell')\nhorovod.run(fail)")
    assert shown["error"].startswith("RuntimeError: rank 0 on localhost failed: ValueError: in a cell")


def test_stop_button(notebook: Notebook) -> None:
    """The cell ends with KeyboardInterrupt, its workers are gone, and the next cell runs."""
    cell = notebook.start(
        "import horovod\n"
        "def wait():\n    import os, signal\n    print(os.getpid(), flush=True)\n    signal.pause()\n"
        "horovod.run(wait, num_proc=2)"
    )
    text, error, workers = "", "", None
    for kind, content in notebook.messages(cell):
        if kind == "stream" and content["name"] == "stdout":
            text += content["text"]
        elif kind == "error":
            error = content["ename"]
        if workers is None and text.count("\n") == 2:
            workers = Watched([int(line.rpartition(":")[2]) for line in text.splitlines()])
            notebook.manager.interrupt_kernel()
    assert error == "KeyboardInterrupt"
    assert workers is not None and workers.gone()
    workers.close()
    assert notebook.run("horovod.run(lambda: 'again')")["result"] == "['again']"


def test_kernel_killed(notebook: Notebook) -> None:
    """Restarting the kernel kills it; its workers must not stay."""
    cell = notebook.start(
        "import horovod\n"
        "def wait():\n    import os, signal\n    print(os.getpid(), flush=True)\n    signal.pause()\n"
        "horovod.run(wait)"
    )
    for kind, content in notebook.messages(cell):
        if kind == "stream" and content["name"] == "stdout":
            worker = Watched([int(content["text"].rpartition(":")[2])])
            notebook.manager.restart_kernel(now=True)
            break
    assert worker.gone()
    worker.close()
