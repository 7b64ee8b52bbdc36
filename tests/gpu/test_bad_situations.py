"""Situations in which this process, or its GPU, cannot go on: each is said in words, and nothing hangs."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from ranks import failure, run_ranks, say

standin_only = pytest.mark.skipif(os.environ.get("HVD_TEST_GPU") == "1", reason="needs a fault at a chosen call")


def capture_a_stream() -> None:
    import ctypes

    import device_array as gpu
    import numpy as np

    import horovod.numpy as hvd
    from horovod._native.abi import Kind

    hvd.init()
    device = gpu.Device(hvd.rank())
    array = gpu.DeviceArray(np.ones(4, "f4"), device)
    array.numpy()
    graph = ctypes.c_void_p()
    with device:
        gpu.call("cuStreamBeginCapture_v2", device.stream, 0)
        say(failure(lambda: gpu.start(Kind.ALLREDUCE, "captured", array, array)))
        gpu.call("cuStreamEndCapture", device.stream, ctypes.byref(graph))
        if graph.value:
            gpu.call("cuGraphDestroy", graph)
    gpu.finish(gpu.start(Kind.ALLREDUCE, "after", array, array, reduce_op=1))
    say(array.numpy().tolist())
    array.free()
    hvd.shutdown()
    device.close()


def test_a_stream_under_capture_is_refused_and_unharmed(gpu_env: dict[str, str]) -> None:
    for ended in run_ranks(2, capture_a_stream, env=gpu_env):
        assert "ValueError: captured: the stream is being captured into a graph" in ended.lines[0], ended.errors
        assert ended.lines[1] == "[2.0, 2.0, 2.0, 2.0]"


def fork_with_a_gpu() -> None:
    import os

    import device_array as gpu
    import numpy as np

    import horovod.numpy as hvd
    from horovod._native.abi import Kind

    hvd.init()
    device = gpu.Device(hvd.rank())
    array = gpu.DeviceArray(np.ones(4, "f4"), device)
    gpu.finish(gpu.start(Kind.ALLREDUCE, "before", array, array, reduce_op=1))
    child = os.fork()
    if child == 0:
        say("child: " + failure(lambda: gpu.start(Kind.ALLREDUCE, "in the child", array, array)))
        sys.stdout.flush()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    gpu.finish(gpu.start(Kind.ALLREDUCE, "after", array, array, reduce_op=1))
    say(array.numpy().tolist())
    array.free()
    hvd.shutdown()
    device.close()


def test_a_forked_child_gets_a_clear_error(gpu_env: dict[str, str]) -> None:
    for ended in run_ranks(2, fork_with_a_gpu, env=gpu_env):
        assert "forked" in next(line for line in ended.lines if line.startswith("child: ")), ended.errors
        assert "[4.0, 4.0, 4.0, 4.0]" in ended.lines


def fail_and_start_again() -> None:
    import device_array as gpu
    import numpy as np

    import horovod.numpy as hvd
    from horovod._native.abi import Kind

    hvd.init()
    device = gpu.Device(hvd.rank())
    array = gpu.DeviceArray(np.ones(4, "f4"), device)
    say(failure(lambda: gpu.finish(gpu.start(Kind.ALLREDUCE, "bad", array, array))))
    hvd.shutdown()
    if os.environ["HOROVOD_RANK"] == "1":
        say(failure(hvd.init))
    os._exit(0)


@standin_only
def test_a_process_that_lost_its_context_is_not_used_again(gpu_env: dict[str, str]) -> None:
    gpu_env["HVD_STANDIN_FAULTS"] = "1:cuEventQuery=700"
    ended = run_ranks(2, fail_and_start_again, env=gpu_env)
    assert "CUDA error 700" in ended[1].lines[0], ended[1].errors
    assert "only a new process can use this GPU again" in ended[1].lines[0]
    assert "this process cannot go on, and has to be replaced by a new one" in ended[1].lines[1]


@standin_only
@pytest.mark.soak  # it takes the 20 s that an abort has
def test_an_abort_that_does_not_return_is_said(gpu_env: dict[str, str]) -> None:
    gpu_env |= {"HVD_STANDIN_FAULTS": "1:nccl.kernel=async(6);1:ncclCommAbort=hang"}
    ended = run_ranks(2, fail_and_start_again, env=gpu_env, limit=120)
    assert "HorovodInternalError" in ended[1].lines[0], ended[1].errors
    assert "ncclCommAbort has not returned" in ended[1].errors
    assert "has to be replaced by a new one: ncclCommAbort has not returned" in ended[1].lines[1]


def keep_a_result() -> None:
    import device_array as gpu
    import numpy as np

    import horovod.numpy as hvd
    from horovod._native import operations
    from horovod._native.abi import Kind

    hvd.init()
    device = gpu.Device(hvd.rank())
    array = gpu.DeviceArray(np.full(2, hvd.rank(), "f4"), device)
    handle = gpu.start(Kind.ALLGATHER, "rows", array, None)
    operations.wait(handle)
    memory = operations.take_result(handle, 0)
    operations.release(handle)
    array.free()
    hvd.shutdown()
    say(gpu.read(memory.address, np.zeros(4, "f4"), device).tolist())
    del memory
    device.close()


def test_a_result_that_was_taken_outlives_the_world(gpu_env: dict[str, str]) -> None:
    for ended in run_ranks(2, keep_a_result, env=gpu_env):
        assert ended.lines == ["[0.0, 0.0, 1.0, 1.0]"], ended.errors
        assert ended.code == 0, ended.errors


def grow_the_buffer() -> None:
    import device_array as gpu
    import numpy as np

    import horovod.numpy as hvd
    from horovod._native import operations
    from horovod._native.abi import Kind

    hvd.init()
    device = gpu.Device(hvd.rank())
    begun = []
    for step, size in enumerate([1, 200_000, 10, 400_000, 100, 900_000, 5]):
        arrays = [gpu.DeviceArray(np.full(size + i, step + i, "f4"), device) for i in range(3)]
        requests = [
            operations.make_request(Kind.ALLREDUCE, f"{step}.{i}", a.view(), a.view(), reduce_op=1)
            for i, a in enumerate(arrays)
        ]
        begun.append((step, arrays, operations.submit(requests, False)))
    for step, arrays, handle in begun:
        gpu.finish(handle)
        for i, each in enumerate(arrays):
            assert set(each.numpy().tolist()) == {2.0 * (step + i)}
            each.free()
    hvd.shutdown()
    device.close()
    say("fine")


@pytest.mark.parametrize("schedule", ["lazy", "random"])
def test_a_fusion_buffer_is_replaced_while_plans_use_the_old_one(schedule: str, gpu_env: dict[str, str]) -> None:
    gpu_env["HVD_STANDIN_SCHEDULE"] = schedule
    for ended in run_ranks(2, grow_the_buffer, env=gpu_env, limit=200):
        assert ended.lines == ["fine"], ended.errors


def fuse_with_different_limits() -> None:
    import device_array as gpu
    import numpy as np

    import horovod.numpy as hvd
    from horovod._native import operations
    from horovod._native.abi import Kind

    hvd.init()
    device = gpu.Device(hvd.rank())
    for step, size in enumerate([400_000, 450_000, 1_000_000]):
        arrays = [gpu.DeviceArray(np.ones(size, "f4"), device) for _ in range(2)]
        requests = [
            operations.make_request(Kind.ALLREDUCE, f"{step}.{i}", a.view(), a.view(), reduce_op=1)
            for i, a in enumerate(arrays)
        ]
        gpu.finish(operations.submit(requests, True))
        for each in arrays:
            assert set(each.numpy().tolist()) == {2.0}
            each.free()
    hvd.shutdown()
    device.close()
    say("fine")


def with_a_small_threshold(rank: int, command: list[str], env: dict[str, str], **options: object) -> object:
    if rank == 1:
        env = env | {"HOROVOD_FUSION_THRESHOLD": str(3_500_000)}
    return subprocess.Popen(command, env=env, **options)  # type: ignore[call-overload]


def test_ranks_with_different_thresholds_agree_on_the_buffer(gpu_env: dict[str, str]) -> None:
    for ended in run_ranks(2, fuse_with_different_limits, env=gpu_env, start=with_a_small_threshold, limit=120):
        assert ended.lines == ["fine"], ended.errors


def test_check_build_tells_which_libraries_and_gpus(gpu_env: dict[str, str]) -> None:
    code = "import horovod.numpy as hvd, ctypes; from horovod._native.library import library\n"
    code += (
        "text = ctypes.create_string_buffer(4000); print(library().hvd_describe_gpus(text, 4000), text.value.decode())"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | gpu_env, capture_output=True, text=True, timeout=60, check=True
    )
    if os.environ.get("HVD_TEST_GPU") != "1":
        assert result.stdout.startswith("1 2.27.5 from "), result.stdout
        assert "driver 12.4 from" in result.stdout
        assert "GPU 3: stand-in (no GPU) at" in result.stdout
    assert "libnccl.so.2" in result.stdout
