"""The smallest chunks of shared memory that can be asked for."""

from __future__ import annotations

import numpy as np
from ranks import run_ranks, say

import horovod.numpy as hvd


def exchange() -> None:
    hvd.init()
    size, rows = hvd.size(), 3000
    sent = np.repeat(np.arange(size) * 10 + hvd.rank(), rows)
    np.testing.assert_array_equal(hvd.alltoall(sent), np.repeat(np.arange(size) + 10 * hvd.rank(), rows))
    summed = hvd.reducescatter(np.arange(size * rows), op=hvd.Sum)
    np.testing.assert_array_equal(summed, np.arange(rows) * size + hvd.rank() * rows * size)
    hvd.barrier()
    say("done")


def test_a_chunk_has_room_for_all_ranks() -> None:
    """Alltoall and reducescatter divide a chunk between the ranks; a cache line is the least for each."""
    settings = {"HOROVOD_SHM_CHUNK_BYTES": "64", "HOROVOD_ONE_SHOT_LIMIT": "0"}
    assert all(each.lines == ["done"] for each in run_ranks(3, exchange, env=settings))
