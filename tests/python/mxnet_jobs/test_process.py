"""Processes with MXNet and Horovod in them: how they end, what they import, whether they grow."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest
from ranks import Ranks, failure, run_ranks, say


def wait_for_a_peer(world: int) -> None:
    import mxnet as mx

    import horovod.mxnet as hvd

    hvd.init()
    hvd.allreduce(mx.nd.ones((2,)), name="together").wait_to_read()
    if hvd.rank() == world - 1:
        say("ready")
        signal.pause()
    results = [hvd.allreduce(mx.nd.ones((100,)) * i, name=f"pending.{i}") for i in range(50)]
    say("ready")
    for result in results:
        try:
            result.asnumpy()
        except hvd.HorovodInternalError as error:
            if not isinstance(error, mx.base.MXNetError) or error.origin_rank != world - 1:
                raise
        else:
            say("no error")
    say(failure(lambda: hvd.allgather(mx.nd.ones((2,)))).split(":")[0])
    say(failure(lambda: hvd.allreduce(mx.nd.ones((2,))).wait_to_read()).split(":")[0])
    say(failure(lambda: (mx.nd.ones((2,)) + 1).wait_to_read()))


@pytest.mark.parametrize("world", [2, 3])
def test_killed_peer_is_an_error_of_what_is_pending(world: int) -> None:
    with Ranks(world, wait_for_a_peer, world) as ranks:
        for rank in range(world):
            ranks.wait_for_line(rank, "ready")
        ranks.send(world - 1, signal.SIGKILL)
        ended = ranks.wait()
    for each in ended[:-1]:
        assert each.lines == ["ready", "CollectiveError", "CollectiveError", "no error"], each
        assert each.code == 0, each.errors


def end_without_waiting() -> None:
    import mxnet as mx
    from mxnet import autograd, gluon

    import horovod.mxnet as hvd

    hvd.init()
    net = gluon.nn.Dense(200, in_units=300)
    net.initialize()
    hvd.broadcast_parameters(net.collect_params())
    trainer = hvd.DistributedTrainer(net.collect_params(), "sgd")
    for _ in range(20):
        with autograd.record():
            loss = net(mx.nd.ones((50, 300))).sum()
        loss.backward()
        trainer.step(50)
    if hvd.rank() == 1:
        for _ in range(20):
            mx.nd.dot(mx.nd.ones((500, 500)), mx.nd.ones((500, 500))).wait_to_read()
        say(float(net.weight.data().sum().asscalar()) != 0)


@pytest.mark.parametrize("engine", ["ThreadedEnginePerDevice", "ThreadedEngine", "NaiveEngine"])
def test_program_that_does_not_wait_for_its_last_step(engine: str) -> None:
    """Rank 0 ends with operations in flight that rank 1 still needs."""
    ended = run_ranks(2, end_without_waiting, env={"MXNET_ENGINE_TYPE": engine})
    assert ended[1].lines == ["True"]
    assert "Error" not in ended[0].errors + ended[1].errors


def end_with_something_pending() -> None:
    import mxnet as mx

    import horovod.mxnet as hvd

    hvd.init()
    hvd.barrier()
    if hvd.rank() == 0:
        hvd.allreduce(mx.nd.ones((2,)), name="never answered")
        say(failure(lambda: hvd.allreduce(mx.nd.ones((2,)), name="nor this").wait_to_read()).split(":")[0])


def test_peer_that_ends_fails_what_it_does_not_answer() -> None:
    assert run_ranks(2, end_with_something_pending)[0].lines == ["CollectiveError"]


def fail_with_something_pending() -> None:
    import mxnet as mx

    import horovod.mxnet as hvd

    hvd.init()
    hvd.allreduce(mx.nd.ones((2,)), name=f"of rank {hvd.rank()}")
    raise ValueError("own mistake")


def test_exception_with_operations_in_flight() -> None:
    with Ranks(2, fail_with_something_pending) as ranks:
        ended = ranks.wait()
    assert [each.code for each in ended] == [1, 1]
    assert all("own mistake" in each.errors for each in ended)


def grow(steps: int) -> None:
    import contextlib
    import gc
    import resource

    import mxnet as mx
    from mxnet import autograd, gluon

    import horovod.mxnet as hvd

    hvd.init()
    net = gluon.nn.Dense(20, in_units=30)
    net.initialize()
    trainer = hvd.DistributedTrainer(net.collect_params(), "sgd", compression=hvd.Compression.fp16, num_groups=1)
    data, values = mx.nd.ones((4, 30)), mx.nd.ones((2000,))

    def step(i: int) -> None:
        with autograd.record():
            loss = net(data).sum()
        loss.backward()
        trainer.step(4)
        hvd.allreduce(values, name=f"one of many.{i % 50}").wait_to_read()
        if i % 10 == 0:
            hvd.allgather(values)
            hvd.grouped_allreduce_([values, values])
            hvd.synchronize(hvd.broadcast_async(values, 0))
            hvd.allreduce(mx.nd.ones((1 + hvd.rank(),)), name="fails")
            with contextlib.suppress(mx.base.MXNetError):
                mx.nd.waitall()

    def used() -> list[int]:
        mx.nd.waitall()
        gc.collect()
        with open("/proc/self/statm") as statm:
            pages = int(statm.read().split()[1])
        return [pages * resource.getpagesize(), len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))]

    for i in range(steps // 5):
        step(i)
    grown = []
    for _ in range(4):
        before = used()
        for i in range(steps // 5):
            step(i)
        grown.append([now - then for now, then in zip(used(), before, strict=True)])
    # What leaks grows in every part; one array in each step would be 16 MB.
    assert sorted(memory for memory, _, _ in grown)[1] < 1 << 20, grown
    assert all(descriptors <= 0 and threads <= 0 for _, descriptors, threads in grown[1:]), grown
    hvd.barrier()
    say("done")


def test_ten_thousand_steps_leave_nothing() -> None:
    assert all(each.lines == ["done"] for each in run_ranks(2, grow, 10_000, limit=600))


def order_of_priorities() -> None:
    import ctypes
    import json
    import random

    import mxnet as mx

    import horovod.mxnet as hvd
    from horovod.mxnet import native

    os.environ["HOROVOD_TIMELINE"] = "DYNAMIC"
    hvd.init()
    # The only thread that runs our operations is kept busy by one more, until all are in its queue.
    release, busy = threading.Event(), threading.Event()
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)

    @function
    def block(context: int, parameter: int) -> None:
        busy.set()
        release.wait()

    array = mx.nd.ones((1,))
    handles = (ctypes.c_void_p * 1)(array.handle)
    where = (ctypes.c_int * 2)(1, 0)
    prioritized = ctypes.c_int(3)
    mx.base.check_call(
        mx.base._LIB.MXEnginePushSyncND(
            block, None, None, where, None, 0, handles, 1, ctypes.byref(prioritized), 100, b"block"
        )
    )
    busy.wait()
    path = os.environ["TIMELINE"]
    hvd.start_timeline(path)
    priorities = random.Random(5).sample(range(-50, 50), 30)
    arrays = [mx.nd.ones((2,)) for _ in priorities]
    mx.nd.concat(*arrays, dim=0).wait_to_read()
    for array, priority in zip(arrays, priorities, strict=True):
        hvd.allreduce_(array, name=f"p{priority}", priority=priority)
    release.set()
    native.wait_all(60)
    hvd.stop_timeline()
    with open(path) as file:
        events = json.load(file)
    tensors = {each["pid"]: each["args"]["name"] for each in events if each.get("name") == "process_name"}
    begun = [tensors[each["pid"]] for each in events if each.get("name") == "NEGOTIATE_ALLREDUCE" and each["ph"] == "B"]
    assert begun == [f"horovod_allreduce.p{each}" for each in sorted(priorities, reverse=True)], begun
    say("done")


def test_higher_priorities_come_first(tmp_path: Path) -> None:
    variables = {"MXNET_CPU_PRIORITY_NTHREADS": "1", "TIMELINE": str(tmp_path / "timeline")}
    assert run_ranks(1, order_of_priorities, env=variables)[0].lines == ["done"]


def fork_workers() -> None:
    import mxnet as mx
    from mxnet import gluon

    import horovod.mxnet as hvd

    hvd.init()
    data = gluon.data.ArrayDataset(mx.nd.arange(64).reshape((32, 2)))
    total = mx.nd.zeros((2,))
    for epoch in range(2):
        for i, batch in enumerate(gluon.data.DataLoader(data, batch_size=8, num_workers=2)):
            total += hvd.allreduce(batch.sum(axis=0), op=hvd.Sum, name=f"batch.{epoch}.{i}")
    say(total.asnumpy().tolist())


def test_data_loader_that_forks() -> None:
    expected = [2 * 2 * sum(range(0, 64, 2)), 2 * 2 * sum(range(1, 64, 2))]
    assert [each.lines for each in run_ranks(2, fork_workers)] == [[str([float(x) for x in expected])]] * 2
