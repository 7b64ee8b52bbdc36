"""Faults at every stage: no rank hangs or leaks, none is lost but the victims, and the error names its cause.

The stand-in injects them (standin/core/faults.h), and checks at the end of each process that nothing is left.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass

import pytest
from ranks import Ranks, say

pytestmark = pytest.mark.standin
LOSS = ("HorovodInternalError",)
STEPS = 6


def steps_until_trouble(steps: int) -> None:
    """A fused and a single allreduce and an uneven allgather in each step, all checked."""
    import device_array as gpu
    import numpy as np

    import horovod.numpy as hvd
    from horovod._native import operations
    from horovod._native.abi import Kind

    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    device = gpu.Device(rank)
    arrays = [gpu.DeviceArray(np.zeros(7 + i, "f4"), device) for i in range(4)]
    outputs = [gpu.DeviceArray(np.zeros(7 + i, "f4"), device) for i in range(4)]
    rows = gpu.DeviceArray(np.full((rank + 1, 2), rank, "i4"), device)
    done = 0

    def one_step(number: int) -> None:
        handles = [
            gpu.start(Kind.ALLREDUCE, f"{number}.{i}", one, other, reduce_op=1)
            for i, (one, other) in enumerate(zip(arrays, outputs, strict=True))
        ]
        handles.append(gpu.start(Kind.ALLGATHER, f"{number}.rows", rows, None))
        try:
            for handle in handles:
                operations.wait(handle)
            for output in outputs:
                assert not output.numpy().any()
            memory = operations.take_result(handles[-1], 0)
            wanted = np.concatenate([np.full((r + 1, 2), r, "i4") for r in range(size)])
            assert (gpu.read(memory.address, wanted, device) == wanted).all()
        finally:
            for handle in handles:
                operations.release(handle)

    try:
        for number in range(steps):
            one_step(number)
            done += 1
            say(f"step {number}")
    except Exception as error:
        say(f"{type(error).__name__}: {error}")
        try:
            one_step(-1)
            say("no error after an error")
        except Exception as another:
            say(f"again {type(another).__name__}")
    try:
        for array in (*arrays, *outputs, rows):
            array.free()
    except RuntimeError as error:  # of the driver, after a fault that stays
        say(error)
    hvd.shutdown()
    try:
        device.close()
    except RuntimeError as error:
        say(error)
    say(f"ended after {done}")


@dataclass(frozen=True)
class Case:
    name: str
    faults: str
    says: tuple[str, ...] = LOSS  # in the error of every rank that lives; empty: there is none
    victims: tuple[int, ...] = ()
    limit: str = ""  # HOROVOD_COLLECTIVE_TIMEOUT_SECONDS
    any_says: str = ""  # in the error of one rank at least, besides
    soak: bool = False
    stays: bool = True  # whether the next operation fails, too


CASES = [
    Case("none", "", ()),
    Case("slow_peer", "1:nccl.kernel@2=slow(300)", ()),
    Case("slow_start", "1:nccl.connect=slow(500)", ()),
    Case("busy_launch", "nccl.launch@2=busy(100);nccl.launch@5=busy(30)", ()),
    Case("ptx_refused_on_one_rank", "1:cuModuleLoadDataEx=222", ()),
    Case("ptx_refused", "cuModuleLoadDataEx=222", (), soak=True),
    Case("no_driver", "1:cuInit@2=100", ("rank 1", "cuInit failed", "100")),
    Case("stub_driver", "1:cuInit@2=34", ("rank 1", "cuInit failed"), soak=True),
    Case("driver_mismatch", "cuInit@2=803", ("cuInit failed", "803"), soak=True),
    Case("no_context", "1:cuDevicePrimaryCtxRetain@2=2", ("rank 1", "cuDevicePrimaryCtxRetain failed")),
    Case("no_id", "0:ncclGetUniqueId=2", ("rank 0", "fault in ncclGetUniqueId")),
    Case("init_fails", "1:ncclCommInitRankConfig=2", any_says="ncclCommInitRankConfig failed on rank 1"),
    # Which rank is the first to report depends on the order in which they run.
    Case("connecting_fails", "1:nccl.connect=3", any_says="ncclCommInitRankConfig failed on rank"),
    Case("init_does_not_end", "1:nccl.connect=never", limit="4", any_says="has not ended"),
    Case("launch_fails", "1:ncclAllReduce@2=3", any_says="fault in ncclAllReduce"),
    Case("group_fails", "1:ncclGroupEnd@2=5", any_says="fault in ncclGroupEnd"),
    Case("error_in_a_kernel", "1:nccl.kernel@3=async(3)", any_says="fault nccl.kernel"),
    Case("system_error_in_a_kernel", "0:nccl.kernel@2=async(2)", any_says="fault nccl.kernel", soak=True),
    Case("remote_error_on_all", "nccl.kernel@2=async(6)", any_says="fault nccl.kernel", soak=True),
    Case("kernel_does_not_end", "1:nccl.kernel@4=never", limit="4", any_says="has not ended after"),
    Case("launch_does_not_end", "1:nccl.launch@3=busy", limit="4", any_says="has not ended after"),
    Case("no_event", "1:cuEventCreate@3=2", any_says="cuEventCreate failed", soak=True),
    Case("slow_abort", "1:nccl.kernel@2=async(3);ncclCommAbort=slow(1000)", any_says="fault nccl.kernel"),
    Case("killed_before_init", "1:ncclCommInitRankConfig=kill", victims=(1,)),
    Case("killed_in_init", "2:nccl.connect=kill", victims=(2,)),
    Case("killed_in_a_kernel", "1:nccl.kernel@3=kill", victims=(1,)),
    Case("rank_0_killed_in_a_kernel", "0:nccl.kernel@2=kill", victims=(0,)),
    Case("killed_after_a_kernel", "2:nccl.kernel.end@4=kill", victims=(2,), soak=True),
    Case("killed_in_a_group", "1:ncclGroupEnd@2=kill", victims=(1,)),
    Case("killed_while_launching", "2:cuLaunchKernel@3=kill", victims=(2,), soak=True),
    Case("two_killed", "0:nccl.kernel@3=kill;2:nccl.kernel@4=kill", victims=(0, 2)),
    Case("stopped_in_init", "1:nccl.connect=stop", victims=(1,), limit="4", soak=True),
    Case("stopped_in_a_kernel", "1:nccl.kernel@3=stop", victims=(1,), limit="4"),
    Case("killed_at_the_end", "1:ncclCommFinalize=kill", (), victims=(1,)),
    Case("killed_at_destroy", "1:ncclCommDestroy=kill", (), victims=(1,), soak=True),
    Case("error_at_the_end", "1:ncclCommFinalize=2", (), soak=True),
]


def run_case(case: Case, env: dict[str, str]) -> None:
    env |= {"HVD_STANDIN_FAULTS": case.faults}
    if case.limit:
        env["HOROVOD_COLLECTIVE_TIMEOUT_SECONDS"] = case.limit
    survivors = [rank for rank in range(3) if rank not in case.victims]
    with Ranks(3, steps_until_trouble, STEPS, env=env, limit=240) as ranks:
        for rank in survivors:
            ranks.wait_for_line(rank, "ended after")
        for rank in case.victims:  # those that are only stopped
            ranks.send(rank, signal.SIGKILL)
        ended = ranks.wait()
        report = ranks._report()
    for rank in range(3):
        assert ended[rank].code == (0 if rank in survivors else -signal.SIGKILL), report
    errors = [line for rank in survivors for line in ended[rank].lines if "Error: " in line]
    if not case.says:
        assert not errors, report
        assert all(f"ended after {STEPS}" in ended[rank].lines for rank in survivors), report
        return
    assert len(errors) == len(survivors), report
    for text in case.says:
        assert all(text in error for error in errors), (text, report)
    assert any(case.any_says in error for error in errors), report
    if case.stays:
        for rank in survivors:
            assert any(line.startswith("again ") for line in ended[rank].lines), report


@pytest.mark.parametrize(
    "case", [pytest.param(each, marks=[pytest.mark.soak] * each.soak, id=each.name) for each in CASES]
)
def test_a_fault_is_survived(case: Case, gpu_env: dict[str, str]) -> None:
    run_case(case, gpu_env)


# As on a machine whose network says nothing: NCCL does not notice, the engine does.
@pytest.mark.parametrize("schedule", ["lazy", pytest.param("random", marks=pytest.mark.soak)])
@pytest.mark.parametrize("place", ["nccl.kernel@4=kill", "ncclCommInitRankConfig=kill"])
def test_a_loss_that_nccl_does_not_notice(place: str, schedule: str, gpu_env: dict[str, str]) -> None:
    gpu_env |= {"HVD_STANDIN_PEER_LOSS": "hang", "HVD_STANDIN_SCHEDULE": schedule}
    run_case(Case("silent", f"1:{place}", victims=(1,)), gpu_env)


def test_a_fault_that_ends_the_context_is_said_in_words(gpu_env: dict[str, str]) -> None:
    """The process cannot use its GPU again, and its error says so; the other ranks go on to their own end."""
    gpu_env["HVD_STANDIN_FAULTS"] = "1:nccl.kernel@3=700"
    with Ranks(3, steps_until_trouble, STEPS, env=gpu_env, limit=240) as ranks:
        ended = ranks.wait()
        report = ranks._report()
    assert all(each.code == 0 for each in ended), report
    assert any("only a new process can use this GPU" in line for line in ended[1].lines), report
    assert all(any("HorovodInternalError" in line for line in each.lines) for each in ended), report


@pytest.mark.soak
def test_an_abort_that_never_returns_is_said_in_words(gpu_env: dict[str, str]) -> None:
    """It takes the 20 s that an abort has. What is stuck stays until the process ends."""
    gpu_env |= {"HVD_STANDIN_FAULTS": "1:nccl.kernel@3=async(3);1:ncclCommAbort=hang", "HVD_STANDIN_LEAKS": "print"}
    with Ranks(3, steps_until_trouble, STEPS, env=gpu_env, limit=240) as ranks:
        for rank in range(3):
            ranks.wait_for_line(rank, "ended after")
        ended = ranks.wait()
        report = ranks._report()
    assert all(each.code == 0 for each in ended), report
    assert "ncclCommAbort has not returned after 20 s: this process cannot use its GPU again" in ended[1].errors, report
