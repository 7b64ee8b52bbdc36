"""horovod.run with workers that come and go."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np
import pytest

import horovod


def train(folder: str, fails: bool = False) -> tuple[int, int]:
    """A rank of the first world dies; the others see ten steps in the worlds after it."""
    import horovod.numpy as hvd
    from horovod.common.elastic import ObjectState, run_fn

    def reset() -> None:
        hvd.shutdown()
        hvd.init()

    def steps(state: ObjectState) -> tuple[int, int]:
        while state.step < 10:
            hvd.allreduce(np.ones(3), name="step", op=hvd.Sum)
            state.step += 1
            if state.step == 5 and hvd.rank() == 1 and not Path(folder, "died").exists():
                Path(folder, "died").touch()
                os.kill(os.getpid(), signal.SIGKILL)
            if fails:
                raise ValueError("no such data")
            state.commit()
        return hvd.rank(), state.step

    hvd.init()
    state = ObjectState(lambda value, root_rank=0, name=None: hvd.broadcast_object(value, root_rank), hvd.rank, step=0)
    return run_fn(steps, reset)(state)


def test_results_of_those_that_survive(tmp_path: Path) -> None:
    results = horovod.run(train, (str(tmp_path),), num_proc=3, min_num_proc=2)
    assert (tmp_path / "died").exists()
    assert results == [(0, 10), (1, 10)]


def test_hosts_of_a_script(tmp_path: Path) -> None:
    script = tmp_path / "hosts.sh"
    script.write_text("#!/bin/sh\necho 127.0.0.1:1; echo 127.0.0.2:2\n")
    script.chmod(0o755)
    results = horovod.run(
        train, (str(tmp_path),), num_proc=3, min_num_proc=2, host_discovery_script=str(script), reset_limit=9
    )
    assert results == [(0, 10), (1, 10)]


def test_a_failure_of_all_is_told(tmp_path: Path) -> None:
    (tmp_path / "died").touch()
    with pytest.raises(RuntimeError, match="no such data"):
        horovod.run(train, (str(tmp_path), True), num_proc=2, min_num_proc=2, reset_limit=0)
