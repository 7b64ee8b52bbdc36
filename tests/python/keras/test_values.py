"""Collectives on plain values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import horovod.keras
import horovod.tensorflow.keras as hvd

modules = pytest.mark.parametrize("module", [hvd, horovod.keras], ids=["tensorflow.keras", "keras"])


@modules
def test_value_functions(module: Any) -> None:
    rank, size = hvd.rank(), hvd.size()
    assert np.array_equal(module.allreduce([float(rank), 1.0], name="mean"), [(size - 1) / 2, 1.0])
    assert np.array_equal(module.allreduce(np.float32(rank), average=None, op=module.Sum), size * (size - 1) / 2)
    assert np.array_equal(module.allgather(np.array([rank]), name="ranks"), range(size))
    assert np.array_equal(module.broadcast(np.array([rank]), size - 1, name="last"), [size - 1])
    rows = np.full((2 * size, 3), rank, np.float32)
    assert np.array_equal(
        module.reducescatter(rows, name="rows", op=module.Sum), np.full((2, 3), size * (size - 1) / 2)
    )
    assert np.array_equal(module.allreduce(2.0, prescale_factor=0.5, postscale_factor=3.0), 3.0)


@modules
def test_reductions_that_values_do_not_have(module: Any) -> None:
    with pytest.raises(ValueError, match="op"):
        module.allreduce(1.0, average=None, op=2)
    with pytest.raises(ValueError, match="op"):
        module.reducescatter([1.0, 2.0], op=2)


def test_op_alone_contradicts_the_default_of_horovod_keras() -> None:
    with pytest.raises(ValueError, match="average"):
        horovod.keras.allreduce(1.0, op=horovod.keras.Sum)
    assert np.array_equal(hvd.allreduce(1.0, op=hvd.Sum), hvd.size())


@modules
def test_names(module: Any) -> None:
    wanted = ["init", "shutdown", "rank", "cross_size", "Average", "Sum", "Compression", "callbacks", "load_model"]
    assert all(hasattr(module, name) for name in wanted)
    assert module.elastic.__all__ == [
        "CommitStateCallback",
        "KerasState",
        "UpdateBatchStateCallback",
        "UpdateEpochStateCallback",
        "run",
    ]
