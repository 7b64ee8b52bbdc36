"""The training of tests/elastic/worker.py on a GPU: its account of samples is reduced there.

A step works on arrays of its own, as a framework with an allocator does: what an aborted step leaves is freed later, by
the next step that succeeds.
"""

from __future__ import annotations

import os
import time
from typing import Any

import device_array as gpu
import numpy as np
import worker
from points import STOP, point, tell

import horovod.numpy as hvd
from horovod._native import operations
from horovod._native.abi import Kind, ReduceOp
from horovod.common.exceptions import HorovodInternalError

_devices: dict[int, gpu.Device] = {}


def device() -> gpu.Device:
    """The hosts of a job are this machine, so they share its GPUs: two for each."""
    host = int(os.environ["HOROVOD_HOSTNAME"].rpartition(".")[2]) - 1
    ordinal = 2 * host + hvd.local_rank()
    if ordinal not in _devices:
        _devices[ordinal] = gpu.Device(ordinal)
    return _devices[ordinal]


def reduced(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The sum over all ranks, in three parts that may be fused."""
    parts = [np.ascontiguousarray(part) for part in np.array_split(values, 3)]
    try:
        here = device()
        arrays = [gpu.DeviceArray(part, here) for part in parts]
    except RuntimeError as error:  # of the driver: what torch raises there
        raise HorovodInternalError(str(error)) from None
    handles: list[int] = []
    try:
        for i, array in enumerate(arrays):
            handles.append(gpu.start(Kind.ALLREDUCE, f"part.{i}", array, array, reduce_op=int(ReduceOp.SUM)))
        point("collective", hvd.rank())
        for handle in handles:
            operations.wait(handle)
        return np.concatenate([array.numpy() for array in arrays])
    except RuntimeError as error:
        tell("error", text=str(error))
        raise HorovodInternalError(str(error)) from None
    finally:
        for handle in handles:
            operations.release(handle)
        for array in arrays:
            with here:
                gpu.cuda().cuStreamSynchronize(here.stream)
                gpu.cuda().cuMemFree_v2(array.memory)


def step(state: worker.Training) -> bool:
    chunk = worker.order(state.epoch)[state.processed : state.processed + worker.BATCH * hvd.size()]
    used = np.zeros_like(state.account)
    used[chunk[hvd.rank() :: hvd.size()]] = 1
    used[worker.SAMPLES] = STOP.exists()
    time.sleep(worker.STEP_SECONDS)
    point("negotiation", hvd.rank())
    total = reduced(used)
    stop = bool(total[worker.SAMPLES])
    total[worker.SAMPLES] = 0
    state.account = state.account + total
    state.processed += len(chunk)
    return stop


def main() -> None:
    worker.step = step
    worker.main()
    for each in _devices.values():
        each.close()


if __name__ == "__main__":
    main()
