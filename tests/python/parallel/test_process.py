"""Barriers, forked children and the timeline."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import numpy as np

import horovod.numpy as hvd


def test_nobody_leaves_a_barrier_before_everybody_is_there() -> None:
    for late in range(hvd.size()):
        hvd.barrier()
        if hvd.rank() == late:
            time.sleep(0.05)
        arrived = time.monotonic()
        hvd.barrier()
        left = time.monotonic()
        times = hvd.allgather(np.array([[arrived, left]]))
        if hvd.local_size() == hvd.size():  # one host, one clock
            assert times[:, 1].min() >= times[:, 0].max()


def test_a_barrier_among_operations_in_flight() -> None:
    handles = [hvd.allreduce_async(np.ones(1000), op=hvd.Sum), hvd.broadcast_async(np.ones(10), 0)]
    handles.append(hvd.allgather_async(np.ones((2, 2))))
    hvd.barrier()
    assert [len(hvd.synchronize(handle)) for handle in handles] == [1000, 10, 2 * hvd.size()]


def test_a_forked_child_gets_clear_errors_and_does_not_disturb() -> None:
    pending = hvd.allreduce_async(np.ones(100), name="across fork", op=hvd.Sum)
    child = os.fork()
    if child == 0:
        os._exit(0 if child_is_refused() else 1)
    assert hvd.allreduce(np.array(1.0), name="during fork", op=hvd.Sum) == hvd.size()
    assert os.waitpid(child, 0)[1] == 0
    np.testing.assert_array_equal(hvd.synchronize(pending), np.full(100, hvd.size()))
    assert hvd.allreduce(np.array(1.0), name="after fork", op=hvd.Sum) == hvd.size()


def child_is_refused() -> bool:
    if hvd.is_initialized():
        return False
    try:
        hvd.rank()
    except ValueError:
        try:
            hvd.allreduce(np.ones(2))
        except hvd.HorovodInternalError as error:
            hvd.shutdown()
            return "fork" in str(error)
    return False


def test_the_timeline_can_be_started_and_stopped(tmp_path: Path) -> None:
    first, second = (hvd.broadcast_object(str(tmp_path / name), 0) for name in ("first.json", "second.json"))
    hvd.start_timeline(first, mark_cycles=True)
    hvd.barrier()  # rank 0 records; the others' requests shall not come before it does
    hvd.allreduce(np.ones(10), name="timeline.a")
    hvd.barrier()
    hvd.start_timeline(second)
    hvd.barrier()
    hvd.stop_timeline()
    hvd.stop_timeline()
    hvd.barrier()
    if hvd.rank() == 0:
        text = Path(first).read_text()
        assert isinstance(json.loads(text), list)
        for part in ("allreduce.timeline.a", "NEGOTIATE_ALLREDUCE", '"ALLREDUCE"', "CYCLE_START"):
            assert part in text
        assert isinstance(json.loads(Path(second).read_text()), list)
        assert "timeline.a" not in Path(second).read_text()
    hvd.barrier()
