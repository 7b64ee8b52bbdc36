"""When an operation counts as complete: for the host, or for the stream that uses its result."""

from __future__ import annotations

import os
import signal

import pytest
from ranks import Ranks, failure, run_ranks, say


def with_a_side_stream() -> None:
    import os

    import device_array as gpu
    import numpy as np
    from device_collectives import hvd as device_hvd

    import horovod.numpy as hvd
    from horovod._generic.handles import handles
    from horovod._native import operations

    hvd.init()
    public, gradient = (operations.completes_on_stream(of_gradients=each) for each in (False, True))
    device = gpu.Device(hvd.rank())
    reader = gpu.Device(hvd.rank())  # another stream, which reads the results
    device_hvd._tensors.current = reader.stream.value
    free = []
    for step in range(20):
        arrays = [gpu.DeviceArray(np.full(500 + i, step + i, "f4"), device) for i in range(4)]
        begun = [device_hvd.allreduce_async_(each, name=f"{i}", op=hvd.Sum) for i, each in enumerate(arrays)]
        for i, handle in enumerate(begun):
            if os.environ["OF_GRADIENTS"] == "1":
                handles.synchronize(handle, of_gradient=True)
            else:
                device_hvd.synchronize(handle)
            result = gpu.read(arrays[i].memory.value, arrays[i].values, reader)
            assert set(result.tolist()) == {2.0 * (step + i)}
        free += arrays
    results = [device_hvd.allreduce(each, name="whole", op=hvd.Average) for each in free[:3]]
    for result, array in zip(results, free, strict=False):
        assert (gpu.read(result.memory.value, result.values, reader) == array.numpy()).all()
    handle = device_hvd.allreduce_async_(free[0], name="polled", op=hvd.Sum)
    while not device_hvd.poll(handle):
        pass
    device_hvd.synchronize(handle)
    for each in free + results:
        each.free()
    hvd.shutdown()
    device.close()
    reader.close()
    say(f"{public} {gradient}")


@pytest.mark.parametrize(
    ("knob", "of_gradients", "says"),
    [("", "1", "False True"), ("1", "0", "True True"), ("0", "1", "False False"), ("0", "0", "False False")],
)
def test_a_stream_may_wait_instead_of_the_host(
    knob: str, of_gradients: str, says: str, gpu_env: dict[str, str]
) -> None:
    gpu_env |= {"HVD_STANDIN_SCHEDULE": "random", "HVD_STANDIN_SEED": "11", "OF_GRADIENTS": of_gradients}
    if knob:
        gpu_env["HOROVOD_ENABLE_ASYNC_COMPLETION"] = knob
    for ended in run_ranks(2, with_a_side_stream, env=gpu_env, limit=200):
        assert says in ended.lines, ended.errors


def hang_in_the_second_operation() -> None:
    import device_array as gpu
    import numpy as np
    from device_collectives import hvd as device_hvd

    import horovod.numpy as hvd

    hvd.init()
    device = gpu.Device(hvd.rank())
    arrays = [gpu.DeviceArray(np.ones(100, "f4"), device) for _ in range(2)]
    device_hvd.allreduce_(arrays[0], name="before")
    gpu.read(arrays[0].memory.value, arrays[0].values, device)
    device_hvd.synchronize(device_hvd.allreduce_async_(arrays[1], name="after"))  # rank 1 does not get past this
    say("launched")
    with device:
        gpu.call("cuStreamSynchronize", device.stream)  # as loss.item() would
    say("the stream moved")
    say(failure(lambda: device_hvd.allreduce_(arrays[0], name="next")))
    for each in arrays:
        each.free()
    hvd.shutdown()
    device.close()


def test_a_thread_that_waits_for_its_stream_goes_on_when_a_peer_dies(gpu_env: dict[str, str]) -> None:
    if os.environ.get("HVD_TEST_GPU") == "1":
        pytest.skip("needs a fault at a chosen call")
    gpu_env |= {
        "HOROVOD_ENABLE_ASYNC_COMPLETION": "1",
        "HVD_STANDIN_PEER_LOSS": "hang",
        "HVD_STANDIN_FAULTS": "1:ncclAllReduce@2=hang",
    }
    with Ranks(2, hang_in_the_second_operation, env=gpu_env, limit=120) as ranks:
        ranks.wait_for_line(0, "launched")
        ranks.send(1, signal.SIGKILL)
        ended = ranks.wait()
    assert ended[0].code == 0, ended[0].errors
    assert "the stream moved" in ended[0].lines
    assert "HorovodInternalError" in ended[0].lines[-1]
