"""Collectives on concrete arrays, outside traced functions. Results of any size.

The engine reads JAX's memory and writes into new memory, which becomes the result without a copy. Arrays on other
devices, or on several, are copied to host memory and back.

Thread rule: any thread.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from horovod._generic.handles import Pending, handles
from horovod._native import operations
from horovod._native.abi import Kind
from horovod._native.operations import EngineMemory, TensorView
from horovod.jax.call import Call
from horovod.jax.types import code_of

Host = np.ndarray[Any, Any]

_ALIGNMENT = 64  # required by XLA to use memory without a copy


def submit(call: Call, arrays: Sequence[Any], wait_follows: bool) -> Pending:
    """Start the collective on arrays of JAX that are one group. Its result: the list of arrays, and received splits."""
    hosts = [_on_host(call, array) for array in arrays]

    def convert(results: list[Host]) -> list[jax.Array]:
        return [_as_jax(each, like) for each, like in zip(results, arrays, strict=True)]

    return _submit(call, hosts, wait_follows, convert)


def run(call: Call, arrays: Sequence[Any]) -> list[jax.Array]:
    """Run the collective and return its results: all groups are submitted before the first is waited for."""
    return _run(call, arrays, submit)


def run_on_host(call: Call, arrays: Sequence[Host]) -> list[Host]:
    """As `run`, with NumPy's arrays: in a callback, JAX must not be used."""
    return _run(call, arrays, lambda part, hosts, wait: _submit(part, [_on_host(part, h) for h in hosts], wait, list))


def _run(call: Call, arrays: Sequence[Any], start: Callable[[Call, Sequence[Any], bool], Pending]) -> list[Any]:
    starts = list(itertools.accumulate(call.groups, initial=0))
    started = []
    for first, last in itertools.pairwise(starts):
        part = replace(call, names=call.names[first:last], groups=(last - first,))
        started.append(start(part, arrays[first:last], len(call.groups) == 1))
    return [each for pending in started for each in handles.finish(handles.next_number(), pending)[0]]


def _submit(
    call: Call, hosts: Sequence[Host], wait_follows: bool, convert: Callable[[list[Host]], list[Any]]
) -> Pending:
    views = [TensorView(host, host.ctypes.data, code_of(host.dtype, call), host.shape) for host in hosts]
    in_advance = call.kind in (Kind.ALLREDUCE, Kind.BROADCAST)
    outputs = [_empty(host.shape, host.dtype) for host in hosts] if in_advance else []
    targets: Sequence[TensorView | None] = [None] * len(hosts)
    if in_advance:
        targets = [
            TensorView(each, each.ctypes.data, view.dtype, view.shape)
            for each, view in zip(outputs, views, strict=True)
        ]
    requests = [
        operations.make_request(
            call.kind,
            name,
            view,
            target,
            call.op,
            call.process_set,
            call.root_rank,
            call.prescale_factor,
            call.postscale_factor,
            call.splits,
        )
        for name, view, target in zip(call.names, views, targets, strict=True)
    ]

    def result(native: int) -> tuple[list[Any], list[int]]:
        results = outputs if in_advance else [_taken(native, i, host.dtype) for i, host in enumerate(hosts)]
        received = operations.received_splits(native, 0) if call.kind == Kind.ALLTOALL else []
        return convert(results), received

    memory = (views, targets)
    return Pending(operations.submit(requests, wait_follows, memory), memory, result)


def _on_host(call: Call, array: Any) -> Host:
    if isinstance(array, jax.Array) and not array.is_fully_addressable:
        raise ValueError(
            f"{call.verb}: the array is spread over several processes of jax.distributed; pass local arrays"
        )
    host = np.asarray(array)
    return host if host.flags.c_contiguous else np.ascontiguousarray(host).reshape(host.shape)


def _empty(shape: Sequence[int], dtype: Any) -> Host:
    dtype = np.dtype(dtype)
    count = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    memory = np.empty(count + _ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    aligned: Host = memory[start : start + count].view(dtype).reshape(shape)
    return aligned


def _taken(native: int, index: int, dtype: Any) -> Host:
    memory: EngineMemory = operations.take_result(native, index)
    if memory.size_in_bytes == 0:
        return np.empty(memory.shape, dtype)
    result: Host = np.asarray(memory).view(dtype).reshape(memory.shape)
    return result


def _as_jax(host: Host, like: Any) -> jax.Array:
    """An array over the memory, where `like` is."""
    place: Callable[..., jax.Array] = jax.device_put
    sharding = getattr(like, "sharding", None)
    if sharding is None or (not like.committed and len(sharding.device_set) == 1):
        return place(host, may_alias=True)
    if len(sharding.device_set) > 1 and like.shape != host.shape:
        return place(host, may_alias=True)
    return place(host, sharding, may_alias=True)
