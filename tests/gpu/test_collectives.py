"""Operations on GPU arrays, compared with the same operations on host memory in the same job."""

from __future__ import annotations

import pytest
from gpu_programs import KINDS, MOVED, OPS, REDUCED, SCHEDULES, VERSIONS, make_job
from random_jobs import run_job
from ranks import failure, run_ranks, say


@pytest.mark.parametrize("number", range(12))
def test_random_programs_give_what_host_memory_gives(number: int, gpu_env: dict[str, str]) -> None:
    assert run_job(f"test.{number}", rounds=4, schedule=SCHEDULES[number % 3]) > 0


def test_random_programs_reach_everything() -> None:
    """What the 12 programs above have in them."""
    jobs = [make_job(f"test.{number}", 4) for number in range(12)]
    steps = [step for job in jobs for steps in job.rounds for step in steps]
    assert {job.size for job in jobs} == {1, 2, 3, 4}
    assert {job.gpus for job in jobs} == {1, 2, 3}
    assert {job.nccl for job in jobs} == set(VERSIONS)
    assert any("NCCL_COMM_BLOCKING" in job.env for job in jobs)
    assert {step.kind for step in steps} == set(KINDS)
    assert {step.dtype for step in steps} == set(MOVED)
    reduced = [step for step in steps if step.kind in ("allreduce", "fused", "reducescatter")]
    assert {step.dtype for step in reduced} == set(REDUCED)
    assert {step.op for step in reduced} == set(OPS)
    assert {len(step.sizes) > 160 for step in steps if step.kind == "fused"} == {False, True}
    assert {ending for step in steps for ending in step.ending} == {"wait", "poll", "stream"}
    assert any(len(step.members) < job.size for job in jobs for steps in job.rounds for step in steps)
    assert any(len(set(job.joins_before)) > 1 for job in jobs)
    assert {1 in step.rows for step in steps} == {0 in step.rows for step in steps} == {False, True}


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
