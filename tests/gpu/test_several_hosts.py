"""Reductions inside the hosts and then between them: HOROVOD_TORUS_ALLREDUCE and Adasum on GPU tensors."""

from __future__ import annotations

import signal

import pytest
from ranks import Ranks, failure, run_ranks, say


def reduce_along_torus() -> None:
    import device_array as gpu
    import numpy as np

    import horovod.numpy as hvd
    from horovod._native.abi import Kind

    everyone_but_0 = hvd.ProcessSet([1, 2, 3])  # hosts of 1 and 2 members: reduced at once
    hvd.init(process_sets=[everyone_but_0])
    rank = hvd.rank()
    device = gpu.Device(hvd.rank())  # the hosts are pretended ones
    for dtype in ("float16", "float32", "int64"):
        sources = [np.full(size, rank + i % 5, dtype) for i, size in enumerate([1, 0, 1000, 4097])]
        arrays = [gpu.DeviceArray(each, device) for each in sources]
        for op in (hvd.Sum, hvd.Average, hvd.Max):
            targets = [gpu.DeviceArray(np.zeros_like(each), device) for each in sources]
            options = {"reduce_op": int(op), "prescale_factor": 0.5 if dtype[0] == "f" else 1.0}
            handles = [
                gpu.start(Kind.ALLREDUCE, f"{dtype}.{op}.{i}", a, t, **options)
                for i, (a, t) in enumerate(zip(arrays, targets, strict=True))
            ]
            for handle in handles:
                gpu.finish(handle)
            for i, (source, target) in enumerate(zip(sources, targets, strict=True)):
                factor = options["prescale_factor"]
                wanted = hvd.allreduce(source, name=f"{dtype}.{op}.{i}.host", op=op, prescale_factor=factor)
                np.testing.assert_allclose(target.numpy().astype("f8"), np.asarray(wanted).astype("f8"), rtol=2e-3)
                target.free()
        for each in arrays:
            each.free()
    if rank != 0:
        array = gpu.DeviceArray(np.full(9, rank, "f4"), device)
        options = {"reduce_op": int(hvd.Sum), "process_set": everyone_but_0.process_set_id}
        gpu.finish(gpu.start(Kind.ALLREDUCE, "set", array, array, **options))
        assert set(array.numpy().tolist()) == {6.0}
        array.free()
    hvd.barrier()
    hvd.shutdown()
    device.close()
    say("fine")


@pytest.mark.parametrize("knob", ["HOROVOD_TORUS_ALLREDUCE", "HOROVOD_HIERARCHICAL_ALLREDUCE"])
def test_torus_gives_what_one_ring_gives(knob: str, gpu_env: dict[str, str]) -> None:
    gpu_env |= {knob: "1", "HVD_STANDIN_SCHEDULE": "random", "HVD_STANDIN_SEED": "3"}
    for ended in run_ranks([2, 2], reduce_along_torus, env=gpu_env, limit=300):
        assert "fine" in ended.lines, ended.errors


def adasum() -> None:
    import device_array as gpu
    import numpy as np

    import horovod.numpy as hvd
    from horovod._native.abi import Kind

    hvd.init()
    rank = hvd.rank()
    hosts = [0, 0, 1] if hvd.size() == 3 else [0, 0, 1, 1]
    device = gpu.Device(hvd.rank())  # the hosts are pretended ones
    for dtype in ("float32", "float64"):
        vectors = [np.random.default_rng([5, r]).standard_normal(301).astype(dtype) for r in range(hvd.size())]
        a, b = (np.mean([v for v, h in zip(vectors, hosts, strict=True) if h == host], axis=0) for host in (0, 1))
        wanted = (1 - a @ b / (2 * a @ a)) * a + (1 - a @ b / (2 * b @ b)) * b
        array = gpu.DeviceArray(vectors[rank], device)
        target = gpu.DeviceArray(np.zeros_like(vectors[rank]), device)
        options = {"reduce_op": int(hvd.Adasum), "prescale_factor": 4.0, "postscale_factor": 0.5}
        for step in range(2):
            gpu.finish(gpu.start(Kind.ALLREDUCE, f"{dtype}.{step}", array, target, **options))
            np.testing.assert_allclose(target.numpy(), 2 * wanted, rtol=1e-4, atol=1e-5)
        empty = gpu.DeviceArray(np.zeros((0, 3), dtype), device)
        gpu.finish(gpu.start(Kind.ALLREDUCE, f"{dtype}.empty", empty, empty, **options))
        for each in (array, target, empty):
            each.free()
    hvd.shutdown()
    device.close()
    say("fine")


@pytest.mark.parametrize("hosts", [[2, 2], [2, 1]], ids=str)
@pytest.mark.parametrize("schedule", ["lazy", "random"])
def test_adasum_averages_inside_the_hosts(hosts: list[int], schedule: str, gpu_env: dict[str, str]) -> None:
    gpu_env["HVD_STANDIN_SCHEDULE"] = schedule
    for ended in run_ranks(hosts, adasum, env=gpu_env, limit=200):
        assert "fine" in ended.lines, ended.errors


def adasum_with_a_lost_peer() -> None:
    import os

    import device_array as gpu
    import numpy as np

    import horovod.numpy as hvd
    from horovod._native.abi import Kind

    hvd.init()
    device = gpu.Device(hvd.rank())  # the hosts are pretended ones
    array = gpu.DeviceArray(np.ones(1000, "f4"), device)
    options = {"reduce_op": int(hvd.Adasum)}
    gpu.finish(gpu.start(Kind.ALLREDUCE, "before", array, array, **options))
    if hvd.rank() == 1:
        handle = gpu.start(Kind.ALLREDUCE, "after", array, array, **options)
        os.kill(os.getpid(), 9 if handle else 0)
    say(failure(lambda: gpu.finish(gpu.start(Kind.ALLREDUCE, "after", array, array, **options))))
    array.free()
    hvd.shutdown()
    device.close()


@pytest.mark.parametrize("loss", ["error", "hang"])
def test_a_peer_lost_in_adasum_is_an_error(loss: str, gpu_env: dict[str, str]) -> None:
    gpu_env["HVD_STANDIN_PEER_LOSS"] = loss
    with Ranks([2, 1], adasum_with_a_lost_peer, env=gpu_env, limit=200) as ranks:
        ended = ranks.wait()
    assert ended[1].code == -signal.SIGKILL, ended[1].errors
    for rank in (0, 2):
        assert ended[rank].code == 0, ended[rank].errors
        assert "HorovodInternalError" in ended[rank].lines[0]
