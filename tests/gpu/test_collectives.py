"""Operations on GPU arrays, compared with the same operations on host memory in the same job."""

from __future__ import annotations

import pytest
from ranks import failure, run_ranks, say


def everything(ranks: int, seed: int) -> None:
    import device_array as gpu
    import numpy as np

    import horovod.numpy as hvd
    from horovod._native import operations
    from horovod._native.abi import Kind

    hvd.init()
    rank, rng = hvd.rank(), np.random.default_rng(seed)
    own = np.random.default_rng([seed, rank])
    device = gpu.Device(hvd.local_rank())
    types = ["uint8", "int8", "int32", "int64", "float16", "float32", "float64"]

    def values(rows: int, dtype: np.dtype) -> np.ndarray:
        return own.integers(0, 9, (rows, 5)).astype(dtype)

    def check(text: str, device_result: np.ndarray, host_result: np.ndarray) -> None:
        dtype = host_result.dtype
        tolerance = 0 if dtype.kind in "iu" else {2: 5e-3, 4: 1e-5, 8: 1e-12}[dtype.itemsize]
        assert device_result.shape == host_result.shape, (text, device_result.shape, host_result.shape)
        np.testing.assert_allclose(
            device_result.astype("f8"), host_result.astype("f8"), rtol=tolerance, err_msg=f"{text} {dtype}"
        )

    for number in range(24):
        kind = rng.choice(["allreduce", "fused", "allgather", "broadcast", "alltoall", "reducescatter"])
        dtype = np.dtype(str(rng.choice(types)))
        rows = int(rng.choice([0, 1, 3, ranks, 2 * ranks, 17]))
        name = f"{number}.{kind}"
        op = str(rng.choice(["Sum", "Average", "Min", "Max"]))
        prescale, postscale = [float(rng.choice([1.0, 0.5])) for _ in range(2)]
        factors = {"prescale_factor": prescale, "postscale_factor": postscale}

        if kind == "fused":
            inputs = [values(int(count), dtype) for count in rng.integers(0, 20, int(rng.choice([2, 7, 200])))]
            sources = [gpu.DeviceArray(each, device) for each in inputs]
            targets = [gpu.DeviceArray(np.zeros_like(each), device) for each in inputs]
            order = own.permutation(len(inputs))
            options = {"reduce_op": int(getattr(hvd, op)), **factors}
            begun = [(i, gpu.start(Kind.ALLREDUCE, f"{name}.{i}", sources[i], targets[i], **options)) for i in order]
            for _, handle in begun:
                gpu.finish(handle)
            for i, each in enumerate(inputs):
                wanted = hvd.allreduce(each, name=f"{name}.{i}.host", op=getattr(hvd, op), **factors)
                check(f"{name} {op}", targets[i].numpy(), np.asarray(wanted))
            for each in sources + targets:
                each.free()
            continue
        if kind == "allreduce":
            mine = values(rows, dtype)
            source = gpu.DeviceArray(mine, device)
            target = source if rng.random() < 0.5 else gpu.DeviceArray(np.zeros_like(mine), device)
            handle = gpu.start(Kind.ALLREDUCE, name, source, target, reduce_op=int(getattr(hvd, op)), **factors)
            gpu.finish(handle)
            check(
                f"{name} {op}",
                target.numpy(),
                np.asarray(hvd.allreduce(mine, name=name + ".host", op=getattr(hvd, op), **factors)),
            )
            if target is not source:
                target.free()
            source.free()
            continue
        count = rows if kind in ("broadcast", "reducescatter") else int(own.integers(0, 7)) * ranks
        mine = values(count, dtype)
        source = gpu.DeviceArray(mine, device)
        if kind == "broadcast":
            root = int(rng.integers(ranks))
            target = gpu.DeviceArray(np.zeros_like(mine), device)
            handle = gpu.start(Kind.BROADCAST, name, source, target, root_rank=root)
            gpu.finish(handle)
            check(f"{name} {op}", target.numpy(), np.asarray(hvd.broadcast(mine, root, name=name + ".host")))
            target.free()
        else:
            if kind == "allgather":
                handle = gpu.start(Kind.ALLGATHER, name, source, None)
                wanted = np.asarray(hvd.allgather(mine, name=name + ".host"))
            elif kind == "alltoall":
                handle = gpu.start(Kind.ALLTOALL, name, source, None)
                result = hvd.alltoall(mine, name=name + ".host")
                wanted = np.asarray(result[0] if isinstance(result, tuple) else result)
            else:
                op = str(rng.choice(["Sum", "Average"]))
                options = {"reduce_op": int(getattr(hvd, op)), **factors}
                handle = gpu.start(Kind.REDUCESCATTER, name, source, None, **options)
                wanted = np.asarray(hvd.reducescatter(mine, name=name + ".host", op=getattr(hvd, op), **factors))
            operations.wait(handle)
            memory = operations.take_result(handle, 0)
            assert memory.shape == wanted.shape, (name, memory.shape, wanted.shape)
            check(f"{name} {op}", gpu.read(memory.address, wanted, device), wanted)
            operations.release(handle)
            del memory
        source.free()
    hvd.shutdown()
    device.close()
    say("fine")


@pytest.mark.parametrize("schedule", ["eager", "lazy", "random"])
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_every_kind_gives_what_host_memory_gives(ranks: int, schedule: str, gpu_env: dict[str, str]) -> None:
    seed = 40 + ranks
    print(f"seed {seed}")
    gpu_env |= {"HVD_STANDIN_SCHEDULE": schedule, "HVD_STANDIN_SEED": str(seed)}
    ended = run_ranks(ranks, everything, ranks, seed, env=gpu_env, limit=300)
    assert all("fine" in each.lines for each in ended)


def two_on_one() -> None:
    import device_array as gpu
    import numpy as np

    import horovod.numpy as hvd
    from horovod._native.abi import Kind

    hvd.init()
    device = gpu.Device(0)
    array = gpu.DeviceArray(np.ones(4, "f4"), device)
    say(failure(lambda: gpu.finish(gpu.start(Kind.ALLREDUCE, "x", array, array))))
    say(str(np.asarray(hvd.allreduce(np.ones(2), op=hvd.Sum, name="still works"))))
    array.free()
    hvd.shutdown()
    device.close()


def test_two_ranks_on_one_gpu_are_named(gpu_env: dict[str, str]) -> None:
    for ended in run_ranks(2, two_on_one, env=gpu_env):
        assert "rank 0 and rank 1 both use the GPU" in ended.lines[0]
        assert "set_device(hvd.local_rank())" in ended.lines[0]
        assert ended.lines[1] == "[2. 2.]"
