"""Where this process stands in the world."""

from __future__ import annotations

import os

import numpy as np
import pytest

import horovod.numpy as hvd


def told(names: str, default: int) -> int:
    """What horovodrun, Open MPI or MPICH said, in their words for it."""
    return next((int(os.environ[name]) for name in names.split() if name in os.environ), default)


def test_place_is_what_the_launcher_said() -> None:
    assert hvd.is_initialized()
    assert hvd.rank() == told("HOROVOD_RANK OMPI_COMM_WORLD_RANK PMI_RANK", 0)
    assert hvd.size() == told("HOROVOD_SIZE OMPI_COMM_WORLD_SIZE PMI_SIZE", 1)
    assert hvd.local_rank() == told("HOROVOD_LOCAL_RANK OMPI_COMM_WORLD_LOCAL_RANK MPI_LOCALRANKID", 0)
    assert hvd.local_size() == told("HOROVOD_LOCAL_SIZE OMPI_COMM_WORLD_LOCAL_SIZE MPI_LOCALNRANKS", 1)
    assert hvd.cross_rank() < hvd.cross_size()
    carries, controls = (os.environ.get(f"HOROVOD_{name}") == "mpi" for name in ("CPU_OPERATIONS", "CONTROLLER"))
    assert hvd.gloo_enabled() is not carries
    assert hvd.mpi_enabled() is (carries or controls)


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
