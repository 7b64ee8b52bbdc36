"""Operations that are dropped: without `__init__` being complete, and when the interpreter ends."""

from __future__ import annotations

import subprocess
import sys

import pytest

from horovod._generic.handles import Pending


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
def test_operation_that_was_interrupted_before_it_had_a_handle(monkeypatch: pytest.MonkeyPatch) -> None:
    failures: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", failures.append)
    operation = Pending.__new__(Pending)
    del operation
    assert failures == []


# The interpreter may have cleared the modules before the object is freed: `operations` is None then.
AT_EXIT = """
import numpy as np
import horovod.numpy as hvd
from horovod._generic import handles
hvd.init()
handle = hvd.allreduce_async(np.ones(3), name="never synchronised")
kept = handles.handles._pending.pop(handle)
handles.operations = None
"""


def test_operation_that_is_freed_when_the_interpreter_ends() -> None:
    result = subprocess.run([sys.executable, "-c", AT_EXIT], capture_output=True, text=True, timeout=300)
    assert (result.returncode, result.stderr) == (0, "")
