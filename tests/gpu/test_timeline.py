"""The timeline of operations on a GPU: what they did there, and when; and the report of one that takes long."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ranks import run_ranks, say


def record() -> None:
    import device_array as gpu
    import numpy as np

    import horovod.numpy as hvd
    from horovod._native import operations
    from horovod._native.abi import Kind

    hvd.init()
    device = gpu.Device(hvd.rank())
    arrays = [gpu.DeviceArray(np.ones(300 + i, "f4"), device) for i in range(3)]
    gpu.finish(gpu.start(Kind.ALLREDUCE, "alone", arrays[0], arrays[0], reduce_op=1))
    requests = [
        operations.make_request(Kind.ALLREDUCE, f"fused.{i}", a.view(), a.view(), reduce_op=1)
        for i, a in enumerate(arrays)
    ]
    gpu.finish(operations.submit(requests, True))
    gpu.finish(gpu.start(Kind.BROADCAST, "from 0", arrays[0], arrays[0], root_rank=0))
    hvd.stop_timeline()
    gpu.finish(gpu.start(Kind.ALLREDUCE, "later", arrays[0], arrays[0], reduce_op=1))
    for each in arrays:
        each.free()
    hvd.shutdown()
    device.close()


def activities(events: list[dict[str, Any]], tensor: str) -> list[tuple[str, float, float]]:
    """Slices inside the last top-level slice of the tensor: name, begin, end; and that one itself, first."""
    pid = next(e["pid"] for e in events if e.get("name") == "process_name" and e["args"]["name"] == tensor)
    found: list[tuple[str, float, float]] = []
    open_slices: list[tuple[str, float]] = []
    for event in events:
        if event.get("pid") != pid or event["ph"] not in "BE":
            continue
        if event["ph"] == "B":
            open_slices.append((event["name"], event["ts"]))
        else:
            name, begin = open_slices.pop()
            found.append((name, begin, event["ts"]))
    assert not open_slices
    return found


def test_activities_have_the_times_of_the_device(gpu_env: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "timeline.json"
    gpu_env["HOROVOD_TIMELINE"] = str(path)
    for ended in run_ranks(2, record, env=gpu_env, limit=120):
        assert ended.code == 0, ended.errors
    events = json.loads(path.read_text())
    alone = activities(events, "alone")
    assert [name for name, *_ in alone] == ["NEGOTIATE_ALLREDUCE", "INIT_NCCL", "QUEUE", "NCCL_ALLREDUCE", "ALLREDUCE"]
    for i in range(3):
        fused = activities(events, f"fused.{i}")
        assert [name for name, *_ in fused] == [
            "NEGOTIATE_ALLREDUCE",
            "QUEUE",
            "MEMCPY_IN_FUSION_BUFFER",
            "NCCL_ALLREDUCE",
            "MEMCPY_OUT_FUSION_BUFFER",
            "ALLREDUCE",
        ]
    assert [name for name, *_ in activities(events, "from 0")][1:] == ["QUEUE", "NCCL_BCAST", "BROADCAST"]
    for tensor in ("alone", "fused.0", "from 0"):
        *inner, (_, begin, end) = activities(events, tensor)
        last = begin
        for _, inner_begin, inner_end in inner[1:]:
            assert last <= inner_begin <= inner_end <= end
            last = inner_end


def wait_for_rank_1() -> None:
    import device_array as gpu
    import numpy as np

    import horovod.numpy as hvd
    from horovod._native.abi import Kind

    hvd.init()
    device = gpu.Device(hvd.rank())
    array = gpu.DeviceArray(np.ones(5, "f4"), device)
    gpu.finish(gpu.start(Kind.ALLREDUCE, "slow", array, array, reduce_op=1))
    say(str(array.numpy().tolist()))
    array.free()
    hvd.shutdown()
    device.close()


def test_the_log_says_what_a_slow_operation_waits_for(gpu_env: dict[str, str]) -> None:
    gpu_env |= {"HOROVOD_STALL_CHECK_TIME_SECONDS": "1", "HVD_STANDIN_FAULTS": "1:ncclAllReduce@1=slow(3000)"}
    ended = run_ranks(2, wait_for_rank_1, env=gpu_env, limit=120)
    assert [each.lines for each in ended] == [["[2.0, 2.0, 2.0, 2.0, 2.0]"]] * 2
    assert "allreduce of slow on GPU 0 has not ended after 1." in ended[0].errors
    assert "its GPU waits for NCCL" in ended[0].errors
