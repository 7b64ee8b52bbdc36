"""The custom calls of JAX on GPUs: their handlers with device memory, and the programs that contain them."""

from __future__ import annotations

import importlib.util
import subprocess
from pathlib import Path

import pytest
from ranks import failure, run_ranks, say

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="skipped: JAX is not installed")


def collectives_of_xla() -> None:
    import device_array as gpu
    import numpy as np
    from xla_frames import Xla, reduce_call

    import horovod.numpy as hvd
    from horovod._native.abi import Kind
    from horovod.jax.call import Call

    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    device = gpu.Device(rank)
    xla, made = Xla(device), []

    def array(shape, value, dtype="f4"):
        made.append(gpu.DeviceArray(np.full(shape, value, dtype), device))
        return made[-1]

    for step in range(10):  # the same names in every step, as in a compiled one
        sources = [array((50 + i,), rank + step + i) for i in range(4)]
        targets = [array((50 + i,), 0) for i in range(4)]
        xla.run(reduce_call(["a", "b", "c", "d"], hvd.Sum), sources, targets)
        xla.run(reduce_call(["g1", "g2"], hvd.Average, [2]), targets[:2], targets[:2])
        total = sum(each + step for each in range(size))
        for i, target in enumerate(targets):
            assert set(target.numpy().tolist()) == {float(total + size * i)}, (step, i)
    half = array((7,), rank, "f2")
    xla.run(reduce_call(["half"], hvd.Sum, prescale_factor=0.5), [half], [half])
    assert set(half.numpy().tolist()) == {sum(range(size)) / 2}
    rows, gathered = array((rank + 1, 3), rank, "i4"), array((size * (size + 1) // 2, 3), -1, "i4")
    call = Call(Kind.ALLGATHER, "allgather", ("rows",), (1,), gathered=(len(gathered.values),), ranks=size)
    xla.run(call, [rows], [gathered])
    assert gathered.numpy()[:, 0].tolist() == [each for each in range(size) for _ in range(each + 1)]
    flags = array((5,), rank == 0, "?")
    xla.run(Call(Kind.BROADCAST, "broadcast", ("flags",), (1,), root_rank=0), [flags], [flags])
    assert flags.numpy().all()
    empty = array((0,), 0)
    xla.run(reduce_call(["empty"], hvd.Sum), [empty], [empty])
    xla.refuses_stream = True
    say(failure(lambda: xla.run(reduce_call(["refused"], hvd.Sum), [half], [half])))
    old = Xla(device, size_of_api=184)
    say(failure(lambda: old.run(reduce_call(["old"], hvd.Sum), [half], [half])))
    xla.refuses_stream = False
    say(failure(lambda: xla.run(reduce_call([f"rank {rank}"], hvd.Sum), [flags], [flags])))
    for each in made:
        each.free()
    hvd.shutdown()
    device.close()
    say("fine")


@pytest.mark.parametrize("completion", ["", "0"])
@pytest.mark.parametrize("schedule", ["lazy", "random"])
def test_custom_calls_work_on_device_memory(completion: str, schedule: str, gpu_env: dict[str, str]) -> None:
    gpu_env |= {"HVD_STANDIN_SCHEDULE": schedule, "HVD_STANDIN_SEED": "5"}
    if completion:
        gpu_env["HOROVOD_ENABLE_ASYNC_COMPLETION"] = completion
    for ended in run_ranks(2, collectives_of_xla, env=gpu_env, limit=200):
        assert ended.lines[-1] == "fine", ended.errors
        assert "XLA does not tell the stream of a custom call: no stream today" in ended.lines[0]
        assert "this jaxlib does not tell custom calls which GPU they run on" in ended.lines[1]
        assert "NCCL has no allreduce of bool" in ended.lines[2]


def sizes_that_do_not_fit() -> None:
    import device_array as gpu
    import numpy as np
    from xla_frames import Xla

    import horovod.numpy as hvd
    from horovod._native.abi import Kind
    from horovod.jax.call import Call

    hvd.init()
    device = gpu.Device(hvd.rank())
    rows = gpu.DeviceArray(np.ones((1 + hvd.rank(), 2), "f4"), device)
    gathered = gpu.DeviceArray(np.zeros((2, 2), "f4"), device)
    call = Call(Kind.ALLGATHER, "allgather", ("rows",), (1,), gathered=(2,), ranks=2)
    say(failure(lambda: Xla(device).run(call, [rows], [gathered])))
    rows.free()
    gathered.free()
    hvd.shutdown()
    device.close()


def test_results_of_another_size_than_compiled_are_refused(gpu_env: dict[str, str]) -> None:
    for ended in run_ranks(2, sizes_that_do_not_fit, env=gpu_env, limit=120):
        assert ended.code == 0, ended.errors
        assert "the result of rows has the shape (3, 2), but (2, 2) was compiled" in ended.lines[0]


def programs() -> None:
    import os

    import jax
    import jax.numpy as jnp

    import horovod.jax as hvd

    function = jax.jit(lambda each: hvd.allreduce(each, op=hvd.Max, name="x"))

    def has_custom_call(array, platform):
        try:
            return "@hvd_jax_run" in function.trace(array).lower(lowering_platforms=(platform,)).as_text()
        except ValueError as error:  # JAX makes no callback for a platform that is not there
            if "lowering platform" in str(error):
                return False
            raise

    hvd.init()
    for platform in ("cuda", "rocm"):
        assert has_custom_call(jnp.ones(3), platform)
        assert not has_custom_call(jnp.ones(3, jnp.int16), platform)  # NCCL has no such type
    hvd.shutdown()
    os.environ["HOROVOD_GPU_OPERATIONS"] = "host"
    hvd.init()  # programs are made again: there is no NCCL in this world
    assert not has_custom_call(jnp.ones(3), "cuda")
    hvd.shutdown()
    say("fine")


@pytest.mark.standin
def test_programs_for_gpus_contain_the_custom_call(gpu_env: dict[str, str]) -> None:
    (ended,) = run_ranks(1, programs, env=gpu_env | {"JAX_PLATFORMS": "cpu"}, limit=200)
    assert ended.lines[-1] == "fine", ended.errors


LAYOUTS = """
#include <cstddef>
#include "adapters/jax/ffi_api.h"
#include "xla/ffi/api/c_api.h"
using namespace hvd::jax;
#define SAME(OURS, OUR_FIELD, XLAS, FIELD) static_assert(offsetof(OURS, OUR_FIELD) == offsetof(XLAS, FIELD))
SAME(FfiApi, create_error, XLA_FFI_Api, XLA_FFI_Error_Create);
SAME(FfiApi, error_text, XLA_FFI_Api, XLA_FFI_Error_GetMessage);
SAME(FfiApi, destroy_error, XLA_FFI_Api, XLA_FFI_Error_Destroy);
SAME(FfiApi, stream, XLA_FFI_Api, XLA_FFI_Stream_Get);
SAME(FfiApi, device_ordinal, XLA_FFI_Api, XLA_FFI_DeviceOrdinal_Get);
SAME(FfiErrorText, message, XLA_FFI_Error_GetMessage_Args, message);
SAME(FfiErrorEnd, error, XLA_FFI_Error_Destroy_Args, error);
SAME(FfiStreamArguments, context, XLA_FFI_Stream_Get_Args, ctx);
SAME(FfiStreamArguments, stream, XLA_FFI_Stream_Get_Args, stream);
SAME(FfiOrdinalArguments, context, XLA_FFI_DeviceOrdinal_Get_Args, ctx);
SAME(FfiOrdinalArguments, ordinal, XLA_FFI_DeviceOrdinal_Get_Args, device_ordinal);
SAME(FfiFrame, api, XLA_FFI_CallFrame, api);
SAME(FfiFrame, context, XLA_FFI_CallFrame, ctx);
SAME(FfiFrame, stage, XLA_FFI_CallFrame, stage);
SAME(FfiFrame, inputs, XLA_FFI_CallFrame, args);
SAME(FfiFrame, outputs, XLA_FFI_CallFrame, rets);
SAME(FfiFrame, attributes, XLA_FFI_CallFrame, attrs);
SAME(FfiBuffer, data, XLA_FFI_Buffer, data);
SAME(FfiBuffer, dims, XLA_FFI_Buffer, dims);
"""


def test_declarations_are_those_of_jaxlib(tmp_path: Path) -> None:
    spec = importlib.util.find_spec("jaxlib")
    assert spec is not None
    assert spec.origin is not None
    include = Path(spec.origin).parent / "include"
    if not (include / "xla/ffi/api/c_api.h").exists():
        pytest.skip("skipped: this jaxlib brings no header of XLA")
    source = tmp_path / "layouts.cc"
    source.write_text(LAYOUTS)
    subprocess.run(
        ["c++", "-std=c++20", "-fsyntax-only", f"-I{ROOT / 'src'}", f"-I{include}", f"-I{ROOT / 'include'}", source],
        check=True,
    )


def with_the_real_xla() -> None:
    import ctypes

    import jax
    import jax.numpy as jnp
    from xla_frames import reduce_call

    import horovod.jax as hvd
    from horovod.jax import compiled
    from horovod.jax.call import attributes_of

    hvd.init()
    library = ctypes.CDLL(compiled.library_of_calls())
    handler = jax.ffi.pycapsule(library.hvd_jax_run_on_gpu)
    jax.ffi.register_ffi_target("on_gpu", handler, platform="cpu")
    call = jax.ffi.ffi_call("on_gpu", [jax.ShapeDtypeStruct((3,), jnp.float32)], has_side_effect=True)
    attributes = attributes_of(reduce_call(["x"], hvd.Sum))
    say(failure(lambda: jax.block_until_ready(jax.jit(lambda x: call(x, **attributes))(jnp.ones(3)))))
    hvd.shutdown()


@pytest.mark.standin
def test_xla_is_asked_for_the_gpu_and_the_stream(gpu_env: dict[str, str]) -> None:
    """XLA:CPU has the same table of functions. It tells an ordinal, and says that there is no stream."""
    (ended,) = run_ranks(1, with_the_real_xla, env=gpu_env | {"JAX_PLATFORMS": "cpu"}, limit=200)
    assert "XLA does not tell the stream of a custom call: " in ended.lines[0]
    assert ended.code == 0, ended.errors
