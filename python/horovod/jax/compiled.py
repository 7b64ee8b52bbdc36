"""Collectives in functions that are traced: a primitive of JAX that becomes a custom call of XLA.

On the CPU, and on GPUs where the ranks have agreed on NCCL, the call is in libhorovod_jax.so, beside libhorovod.so. On
other devices, with a jaxlib that cannot use the library, or with HOROVOD_JAX_FALLBACK=1, it is a callback to Python
(fallback.py). The calls on GPUs have not been run on one.

Thread rule: any thread.
"""

from __future__ import annotations

import ctypes
import functools
import os
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jaxlib.version
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir

from horovod._generic.handles import handles
from horovod._generic.reduce_ops import Adasum
from horovod._native.abi import Kind
from horovod._native.library import library, library_path
from horovod.jax import eager, fallback, self_test
from horovod.jax.call import Call, attributes_of
from horovod.jax.types import code_of
from horovod.jax.world import compiled_for

GPUS = {"cuda": "CUDA", "rocm": "ROCM"}  # what JAX calls them where a primitive is lowered, and where XLA finds a call

collective_p = Primitive("horovod")
collective_p.multiple_results = True


def library_of_calls() -> str:
    """Where the library with the custom calls is."""
    return str(Path(library_path()).with_name("libhorovod_jax.so"))


class CustomCalls:
    """The loaded library, registered with XLA."""

    def __init__(self) -> None:
        library()  # libhorovod.so first: the other one then uses the same
        self._library = ctypes.CDLL(library_of_calls())
        for name in ("hvd_jax_run", "hvd_jax_start", "hvd_jax_done"):
            jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(getattr(self._library, name)), platform="cpu")
        for platform in GPUS.values():
            on_gpu = jax.ffi.pycapsule(self._library.hvd_jax_run_on_gpu)
            jax.ffi.register_ffi_target("hvd_jax_run", on_gpu, platform=platform)
        handles.when_restarted(self.forget)

    def forget(self) -> None:
        """A new world has been formed: operations started in the last one will not be finished."""
        self._library.hvd_jax_forget_started()


@functools.cache
def custom_calls() -> CustomCalls | None:
    """The library; None if callbacks replace it."""
    if os.environ.get("HOROVOD_JAX_FALLBACK", "0") not in ("", "0"):
        return None
    try:
        found = self_test.result(library_of_calls())
        if found not in ("", self_test.PASSED):
            raise ImportError(f"Horovod's custom calls do not work with jaxlib {jaxlib.version.__version__}: {found}")
        return CustomCalls()
    except (ImportError, OSError) as error:
        warnings.warn(f"{error}; using slower callbacks to Python instead", RuntimeWarning, stacklevel=2)
        return None


def run(call: Call, arrays: Sequence[Any]) -> list[Any]:
    """Run the collective, now if the arrays are concrete, else when the traced function runs."""
    results: list[Any] = collective_p.bind(*arrays, call=call)
    return results


collective_p.def_impl(lambda *arrays, call: eager.run(call, arrays))


def _results(*arrays: Any, call: Call) -> list[Any]:
    for each in arrays:
        code_of(each.dtype, call)
    shapes = call.result_shapes([each.shape for each in arrays])
    return [ShapedArray(shape, each.dtype) for shape, each in zip(shapes, arrays, strict=True)]


collective_p.def_abstract_eval(_results)


def _check_one_device(context: Any, call: Call) -> None:
    """ValueError for a program on several devices, each of which would run the collective under the same name."""
    where = getattr(context.module_context, "axis_context", None)  # an internal part of JAX that may move
    devices = getattr(where, "num_devices", None) or getattr(getattr(where, "mesh", None), "size", None)
    if isinstance(devices, int) and devices > 1:
        raise ValueError(
            f"{call.verb} in a function that is compiled for {devices} devices (shard_map, pmap, or arrays that are "
            "spread over devices): one rank is one process with one device. Start one process per device, or call it "
            "outside of the function"
        )


def _lower_to_callback(context: Any, *arrays: Any, call: Call) -> Any:
    _check_one_device(context, call)
    return _lower_any(context, *arrays, call=call)


def _lower_on_gpu(context: Any, *arrays: Any, call: Call) -> Any:
    types = [code_of(each.dtype, call) for each in context.avals_in]
    if not compiled_for.accepts_on_gpu(call.kind, types, call.op):
        return _lower_to_callback(context, *arrays, call=call)
    return _lower_to_custom_call(context, *arrays, call=call)


def _lower_to_custom_call(context: Any, *arrays: Any, call: Call) -> Any:
    if custom_calls() is None:
        return _lower_to_callback(context, *arrays, call=call)
    _check_one_device(context, call)
    in_place = call.kind in (Kind.ALLREDUCE, Kind.BROADCAST)
    aliases = {i: i for i in range(len(arrays))} if in_place else None
    rule: Callable[..., Any] = jax.ffi.ffi_lowering("hvd_jax_run", operand_output_aliases=aliases, has_side_effect=True)
    return rule(context, *arrays, **attributes_of(call))


_lower_any = mlir.lower_fun(fallback.run, multiple_results=True)
mlir.register_lowering(collective_p, _lower_to_callback)
mlir.register_lowering(collective_p, _lower_to_custom_call, platform="cpu")
for _platform in GPUS:
    mlir.register_lowering(collective_p, _lower_on_gpu, platform=_platform)


def _batch(arrays: Sequence[Any], axes: Sequence[Any], *, call: Call) -> tuple[list[Any], list[int]]:
    """What vmap does: one collective for the whole batch, except for Adasum, where every example is a tensor."""
    count = next(each.shape[axis] for each, axis in zip(arrays, axes, strict=True) if axis is not None)
    whole = call.kind in (Kind.ALLREDUCE, Kind.BROADCAST)
    place = 0 if whole else 1  # rows stay first

    def moved(array: Any, axis: int | None) -> Any:
        if axis is not None:
            return jnp.moveaxis(array, axis, place)
        return jnp.broadcast_to(jnp.expand_dims(array, place), (*array.shape[:place], count, *array.shape[place:]))

    if not whole and any(each.ndim - (axis is not None) == 0 for each, axis in zip(arrays, axes, strict=True)):
        raise ValueError(f"{call.verb} needs arrays with rows, not scalars, for every example of vmap")
    batched = [moved(array, axis) for array, axis in zip(arrays, axes, strict=True)]
    if call.kind == Kind.ALLREDUCE and call.op == Adasum:
        return list(jax.lax.map(lambda each: run(call, each), batched)), [0] * len(batched)
    return run(call, batched), [place] * len(batched)


batching.primitive_batchers[collective_p] = _batch
