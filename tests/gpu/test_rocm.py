"""The same backend under the names of ROCm: libamdhip64 and librccl. There are no kernels, so tensors are copied one by
one, and scaled on the host.
"""

from __future__ import annotations

import os

import pytest
from gpu_machine import STANDIN
from ranks import run_ranks, say


def everything_on_hip() -> None:
    import device_array as gpu
    import numpy as np

    import horovod.numpy as hvd
    from horovod._native import operations
    from horovod._native.abi import Kind

    say(f"{hvd.rocm_built()} {hvd.cuda_built()} {hvd.nccl_built()}")
    hvd.init()
    rank = hvd.rank()
    first, second = gpu.Device(rank), gpu.Device(2 + rank)
    for device in (first, second):
        arrays = [gpu.DeviceArray(np.full(3 + i, rank + i, "f4"), device) for i in range(20)]
        requests = [
            operations.make_request(
                Kind.ALLREDUCE, f"{device.ordinal - rank}.{i}", a.view(), a.view(), reduce_op=1, postscale_factor=2.0
            )
            for i, a in enumerate(arrays)
        ]
        gpu.finish(operations.submit(requests, True))
        for i, each in enumerate(arrays):
            assert set(each.numpy().tolist()) == {2.0 * (1 + 2 * i)}
        handle = gpu.start(Kind.ALLGATHER, f"rows.{device.ordinal - rank}", arrays[rank], None)
        operations.wait(handle)
        memory = operations.take_result(handle, 0)
        gathered = gpu.read(memory.address, np.zeros(7, "f4"), device)
        assert gathered.tolist() == [2.0] * 3 + [6.0] * 4
        operations.release(handle)
        del memory
        for each in arrays:
            each.free()
    if rank == 1:
        array = gpu.DeviceArray(np.full(9, 3, "i8"), first)
        gpu.finish(gpu.start(Kind.ALLREDUCE, "joined", array, array, reduce_op=1))
        assert set(array.numpy().tolist()) == {3}
        array.free()
    hvd.join()
    hvd.shutdown()
    first.close()
    second.close()
    say("fine")


@pytest.mark.parametrize("schedule", ["eager", "lazy", "random"])
def test_all_works_under_the_names_of_rocm(schedule: str, gpu_env: dict[str, str]) -> None:
    if os.environ.get("HVD_TEST_GPU") == "1":
        pytest.skip("on real GPUs the suite runs under the names of their maker")
    gpu_env |= {"LD_LIBRARY_PATH": str(STANDIN / "rocm"), "HVD_TEST_HIP": "1", "HVD_STANDIN_SCHEDULE": schedule}
    for ended in run_ranks(2, everything_on_hip, env=gpu_env, limit=200):
        assert ended.lines == ["True False 22803", "fine"], ended.errors
