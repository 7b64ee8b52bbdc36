"""Situations around GPU operations: process sets, join, several GPUs, streams, agreement, lost peers, memory."""

from __future__ import annotations

import signal
import subprocess
from typing import Any

import pytest
from ranks import Ranks, failure, run_ranks, say


def sets_join_and_devices() -> None:
    import device_array as gpu
    import numpy as np

    import horovod.numpy as hvd
    from horovod._native.abi import Kind, ReduceOp

    pair = hvd.ProcessSet([0, 2])
    hvd.init(process_sets=[pair])
    rank = hvd.rank()

    def total(name: str, device: gpu.Device, values: list[float], process_set: int = 0) -> list[float]:
        array = gpu.DeviceArray(np.array(values, "f4"), device)
        options = {"reduce_op": int(ReduceOp.SUM), "process_set": process_set}
        gpu.finish(gpu.start(Kind.ALLREDUCE, name, array, array, **options))
        result = array.numpy().tolist()
        array.free()
        return result

    # Every rank changes to another GPU in turn, at different moments.
    first, second = gpu.Device(rank), gpu.Device(3 + rank)
    for step in range(4):
        device = second if step >= 1 + rank else first
        assert total(f"turn.{step}", device, [rank + step, 1]) == [3 + 3 * step, 3]
    if rank in (0, 2):
        assert total("pair", first, [rank + 1], pair.process_set_id) == [4]
    # Rank 0 joins first; the others see zeros for it, alone and fused.
    if rank != 0:
        assert total("without 0", first, [5, rank]) == [10, 3]
        arrays = [gpu.DeviceArray(np.full(n + 1, rank, "f4"), first) for n in range(40)]
        begun = [gpu.start(Kind.ALLREDUCE, f"many.{i}", each, each, reduce_op=1) for i, each in enumerate(arrays)]
        for handle in begun:
            gpu.finish(handle)
        for i, each in enumerate(arrays):
            assert each.numpy().tolist() == [3.0] * (i + 1)
            each.free()
    hvd.join(0 if rank == 0 else -1)
    hvd.shutdown()
    first.close()
    second.close()
    say("fine")


@pytest.mark.standin
def test_process_sets_joins_and_changing_devices(gpu_env: dict[str, str]) -> None:
    gpu_env["HVD_STANDIN_GPUS"] = "6"
    for ended in run_ranks(3, sets_join_and_devices, env=gpu_env, limit=200):
        assert "fine" in ended.lines


def many_communicators() -> None:
    import ctypes
    import random

    import device_array as gpu
    import numpy as np

    import horovod.numpy as hvd
    from horovod._native.abi import Kind

    hvd.init()
    devices, chance = [gpu.Device(2 * hvd.rank() + i) for i in range(2)], random.Random(hvd.rank())
    arrays = [gpu.DeviceArray(np.ones(4, "f4"), device) for device in devices]
    for step in range(16):  # 8 streams, and GPUs in turn: 16 communicators, at addresses that differ between ranks
        blocks = [ctypes.create_string_buffer(size) for size in range(64, 768, 2)]
        chance.shuffle(blocks)
        del blocks[::2]
        array = arrays[step // 8]
        gpu.finish(gpu.start(Kind.ALLREDUCE, f"{step}", array, array, reduce_op=1))
    for array in arrays:
        array.free()
    hvd.shutdown()
    for device in devices:
        device.close()
    say("fine")


@pytest.mark.standin
def test_all_ranks_end_their_communicators_in_the_same_order(gpu_env: dict[str, str]) -> None:
    """The end of one waits for its other members, without a limit where NCCL's calls block."""
    gpu_env |= {"HOROVOD_NUM_NCCL_STREAMS": "8", "NCCL_COMM_BLOCKING": "1"}
    for ended in run_ranks(2, many_communicators, env=gpu_env, limit=100):
        assert "fine" in ended.lines, ended.errors


def on_streams() -> None:
    import device_array as gpu
    import numpy as np

    import horovod.numpy as hvd
    from horovod._native import operations
    from horovod._native.abi import Kind

    hvd.init()
    device = gpu.Device(hvd.rank())
    for step in range(5):
        arrays = [gpu.DeviceArray(np.full(1000, step + i, "f4"), device) for i in range(3)]
        handles = [gpu.start(Kind.ALLREDUCE, f"{step}.{i}", each, each, reduce_op=1) for i, each in enumerate(arrays)]
        for handle in handles:
            gpu.finish_on_stream(handle, device)  # the host does not wait; the stream that reads does
        for i, each in enumerate(arrays):
            assert set(each.numpy().tolist()) == {2.0 * (step + i)}
        for handle in handles:
            operations.wait(handle)
            operations.release(handle)
        for each in arrays:
            each.free()
    hvd.shutdown()
    device.close()
    say("fine")


def test_a_stream_waits_for_what_is_launched(gpu_env: dict[str, str]) -> None:
    gpu_env |= {"HVD_STANDIN_SCHEDULE": "random", "HVD_STANDIN_SEED": "7", "HOROVOD_NUM_NCCL_STREAMS": "2"}
    for ended in run_ranks(2, on_streams, env=gpu_env, limit=200):
        assert "fine" in ended.lines


def initialise() -> None:
    import horovod.numpy as hvd
    from horovod._native import operations
    from horovod._native.abi import DType, Kind, ReduceOp

    error = failure(hvd.init)
    say(error)
    if error == "no error":
        say(operations.device_accepts(Kind.ALLREDUCE, DType.FLOAT32, ReduceOp.SUM))
        hvd.shutdown()


def without_nccl_on_rank_1(rank: int, command: list[str], env: dict[str, str], **options: Any) -> subprocess.Popen[str]:
    if rank == 1:
        env = env | {"LD_LIBRARY_PATH": env["LD_LIBRARY_PATH"].split(":")[0]}
    return subprocess.Popen(command, env=env, **options)


@pytest.mark.standin
def test_one_rank_without_nccl_makes_all_stage(gpu_env: dict[str, str]) -> None:
    ended = run_ranks(2, initialise, env=gpu_env, start=without_nccl_on_rank_1)
    assert [each.lines for each in ended] == [["no error", "False"]] * 2
    assert "GPU tensors are copied through host memory: rank 1: no libnccl.so.2 was found" in ended[0].errors


@pytest.mark.standin
def test_required_nccl_that_is_missing_fails_init(gpu_env: dict[str, str]) -> None:
    gpu_env["HOROVOD_GPU_OPERATIONS"] = "nccl"
    for ended in run_ranks(2, initialise, env=gpu_env, start=without_nccl_on_rank_1):
        assert "not every rank can use NCCL: rank 1: no libnccl.so.2" in ended.lines[0]


def lose_a_peer() -> None:
    import device_array as gpu
    import numpy as np

    import horovod.numpy as hvd
    from horovod._native.abi import Kind

    hvd.init()
    device = gpu.Device(hvd.rank())
    array = gpu.DeviceArray(np.ones(8, "f4"), device)
    gpu.finish(gpu.start(Kind.ALLREDUCE, "before", array, array))
    say("ready")
    if hvd.rank() == 1:
        signal.pause()
    say(failure(lambda: gpu.finish(gpu.start(Kind.ALLREDUCE, "after", array, array))))
    say(failure(lambda: gpu.finish(gpu.start(Kind.ALLREDUCE, "later", array, array))))
    array.free()
    hvd.shutdown()
    device.close()


def test_a_killed_peer_is_an_error_and_nothing_is_left(gpu_env: dict[str, str]) -> None:
    with Ranks(2, lose_a_peer, env=gpu_env, limit=120) as ranks:
        ranks.wait_for_line(0, "ready")
        ranks.wait_for_line(1, "ready")
        ranks.send(1, signal.SIGKILL)
        ended = ranks.wait()
    assert ended[0].code == 0, ended[0].errors
    assert "HorovodInternalError" in ended[0].lines[1]
    assert "rank 1" in ended[0].lines[1]
    assert "HorovodInternalError" in ended[0].lines[2]


def fuse_with_little_memory() -> None:
    import device_array as gpu
    import numpy as np

    import horovod.numpy as hvd
    from horovod._native.abi import Kind

    hvd.init()
    device = gpu.Device(hvd.rank())
    arrays = [gpu.DeviceArray(np.full(1 << 18, i, "f4"), device) for i in range(12)]  # 1 MiB each
    begun = [gpu.start(Kind.ALLREDUCE, f"{i}", each, each, reduce_op=1) for i, each in enumerate(arrays)]
    for handle in begun:
        gpu.finish(handle)
    for i, each in enumerate(arrays):
        assert set(each.numpy().tolist()) == {2.0 * i}
        each.free()
    hvd.shutdown()
    device.close()
    say("fine")


@pytest.mark.standin
def test_too_little_memory_for_fusion_makes_smaller_pieces(gpu_env: dict[str, str]) -> None:
    gpu_env |= {"HVD_STANDIN_MEMORY": str(15 << 20), "HOROVOD_CYCLE_TIME": "300"}
    for ended in run_ranks(2, fuse_with_little_memory, env=gpu_env, limit=200):
        assert "fine" in ended.lines
        assert "no memory for a fusion buffer" in ended.errors
