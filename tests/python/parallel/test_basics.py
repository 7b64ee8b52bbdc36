"""Where this process stands in the world."""

from __future__ import annotations

import os

import numpy as np
import pytest

import horovod.numpy as hvd


def test_place_is_what_the_launcher_said() -> None:
    assert hvd.is_initialized()
    assert hvd.rank() == int(os.environ.get("HOROVOD_RANK", "0"))
    assert hvd.size() == int(os.environ.get("HOROVOD_SIZE", "1"))
    assert hvd.local_rank() == int(os.environ.get("HOROVOD_LOCAL_RANK", "0"))
    assert hvd.local_size() == int(os.environ.get("HOROVOD_LOCAL_SIZE", "1"))
    assert hvd.cross_rank() < hvd.cross_size()
    assert hvd.gloo_enabled() and not hvd.mpi_enabled()


def test_ranks_are_distinct_and_complete() -> None:
    places = hvd.allgather(np.array([[hvd.rank(), hvd.size()]]))
    np.testing.assert_array_equal(places, [[rank, hvd.size()] for rank in range(hvd.size())])


def test_init_again_does_nothing() -> None:
    hvd.init()
    hvd.init(process_sets="dynamic")
    np.testing.assert_array_equal(hvd.allreduce(np.ones(2), op=hvd.Sum), np.full(2, hvd.size()))


def test_the_world_can_be_formed_again() -> None:
    rank, size = hvd.rank(), hvd.size()
    for _ in range(3):
        hvd.barrier()
        hvd.shutdown()
        assert not hvd.is_initialized()
        with pytest.raises(ValueError, match="initialized"):
            hvd.rank()
        hvd.init(process_sets="dynamic")
        assert (hvd.rank(), hvd.size()) == (rank, size)
        handle = hvd.allreduce_async(np.full(3, 1.0 + rank), op=hvd.Max)
        assert handle == 1
        np.testing.assert_array_equal(hvd.synchronize(handle), np.full(3, float(size)))
