"""Submitting and finishing operations. The few microseconds spent here add to every collective, so repeated data
(a request's fixed part, option structs) is created once.

Thread rule: any thread, as for the C ABI.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from ctypes import byref, c_int32, c_int64, sizeof
from functools import lru_cache

from horovod._native.abi import HOST_DEVICE, WORLD_SET, Code, DType, Handle, Kind, Request, SubmitOptions, Tensor
from horovod._native.dlpack import Outputs
from horovod._native.library import checked, library, raise_error

_OK = int(Code.OK)
_TIMED_OUT = int(Code.TIMED_OUT)
# A wait is cut into slices of this many seconds, because Python delivers signals (Ctrl-C) between calls only.
_WAIT_SLICE = 0.2

ITEM_SIZES: dict[int, int] = {
    DType.UINT8: 1,
    DType.INT8: 1,
    DType.UINT16: 2,
    DType.INT16: 2,
    DType.INT32: 4,
    DType.INT64: 8,
    DType.FLOAT16: 2,
    DType.FLOAT32: 4,
    DType.FLOAT64: 8,
    DType.BOOL: 1,
    DType.BFLOAT16: 2,
    DType.COMPLEX64: 8,
    DType.COMPLEX128: 16,
}

_WAIT_FOLLOWS = byref(SubmitOptions(struct_size=sizeof(SubmitOptions), wait_follows=1))


class TensorView:
    """The address and type of a tensor's elements. `owner` keeps the memory alive."""

    __slots__ = ("data", "device", "dtype", "owner", "ready_event", "shape", "stream")

    def __init__(
        self,
        owner: object,
        data: int,
        dtype: int,
        shape: tuple[int, ...],
        device: int = HOST_DEVICE,
        stream: int = 0,
        ready_event: int = 0,
    ) -> None:
        self.owner = owner
        self.data = data
        self.dtype = dtype
        self.shape = shape
        self.device = device
        self.stream = stream
        self.ready_event = ready_event

    @property
    def place(self) -> object:
        """The common device of the tensors of one group, as the user sees it."""
        return self.device


class _Template:
    """The part of a request that is the same for every call with the same arguments."""

    __slots__ = ("bytes", "shape")

    def __init__(self, request: Request, shape: ctypes.Array[c_int64]) -> None:
        self.bytes = bytes(request)
        self.shape = shape  # the bytes refer to this


@lru_cache(maxsize=4096)
def _template(
    kind: int,
    dtype: int,
    shape: tuple[int, ...],
    device: int,
    reduce_op: int,
    process_set: int,
    root_rank: int,
    prescale_factor: float,
    postscale_factor: float,
) -> _Template:
    sizes = (c_int64 * len(shape))(*shape)
    tensor = Tensor(struct_size=sizeof(Tensor), dtype=dtype, device=device, ndim=len(shape), shape=sizes)
    request = Request(
        struct_size=sizeof(Request),
        kind=kind,
        reduce_op=reduce_op,
        process_set=process_set,
        root_rank=root_rank,
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
        input=tensor,
        output=tensor,
    )
    return _Template(request, sizes)


def make_request(
    kind: int,
    name: str,
    source: TensorView,
    target: TensorView | None,
    reduce_op: int = 0,
    process_set: int = WORLD_SET,
    root_rank: int = -1,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    splits: Sequence[int] = (),
) -> Request:
    """Describe one tensor's operation; without a target, or with no splits, the engine allocates or splits evenly."""
    template = _template(
        kind,
        source.dtype,
        source.shape,
        source.device,
        reduce_op,
        process_set,
        root_rank,
        prescale_factor,
        postscale_factor,
    )
    request = Request.from_buffer_copy(template.bytes)
    request.template = template
    request.name = name.encode()
    request.input.data = source.data
    if source.device != HOST_DEVICE:
        request.input.stream, request.input.ready_event = source.stream, source.ready_event
    if target is None:
        request.output.ndim, request.output.shape = 0, None
    else:
        request.output.data = target.data
        if target.device != HOST_DEVICE:
            request.output.stream, request.output.ready_event = target.stream, target.ready_event
    if splits:
        request.splits = (c_int32 * len(splits))(*splits)
        request.splits_count = len(splits)
    return request


def make_signal(kind: Kind, name: str, process_set: int = WORLD_SET, device: int = HOST_DEVICE) -> Request:
    """Describe an operation without tensors: a barrier or a join, which may name the device of its zeros."""
    tensor = Tensor(struct_size=sizeof(Tensor), device=device)
    return Request(
        struct_size=sizeof(Request),
        kind=kind,
        process_set=process_set,
        root_rank=-1,
        name=name.encode(),
        prescale_factor=1.0,
        postscale_factor=1.0,
        input=tensor,
        output=tensor,
    )


def submit(
    requests: Sequence[Request], wait_follows: bool, memory: object = None, outputs: Outputs | None = None
) -> int:
    """Submit one request, or a group, and return the engine's handle.

    `memory`: everything that the requests refer to. It stays alive if an exception, such as an interrupt, prevents the
    return of the handle after the engine has accepted the requests.
    """
    handle = Handle()
    count = len(requests)
    options = _WAIT_FOLLOWS if wait_follows else None
    if outputs is not None:
        options = byref(outputs.options(wait_follows))
    try:
        group = requests[0] if count == 1 else (Request * count)(*requests)
        code = library().hvd_submit(group, count, options, byref(handle))
        if code != _OK:
            raise_error(code)
        return handle.value
    except BaseException:
        if handle.value:
            keep(handle.value, memory)
        raise


_left: dict[int, object] = {}  # memory of operations in flight that no caller waits for any more, by handle


def keep(handle: int, memory: object) -> None:
    """Keep the memory of an operation in flight whose handle is about to be dropped, until the operation is over."""
    for other in list(_left):
        if is_over(other):
            release(other)
            _left.pop(other, None)
    _left[handle] = memory


def is_over(handle: int) -> bool:
    """Whether the engine uses none of the operation's memory any more: it is done, or its world has ended."""
    return bool(library().hvd_poll(handle) != 0)


def wait(handle: int) -> None:
    """Wait until the operation is done and raise if it failed. Interruptible: the handle stays valid either way."""
    hvd_wait = library().hvd_wait
    code = hvd_wait(handle, _WAIT_SLICE)
    while code == _TIMED_OUT:
        code = hvd_wait(handle, _WAIT_SLICE)
    if code != _OK:
        raise_error(code)


def wait_on_stream(handle: int, stream: int) -> None:
    """Wait until the operation is on streams of its device, and make `stream` wait for it there. Interruptible."""
    hvd_wait_on_stream = library().hvd_wait_on_stream
    code = hvd_wait_on_stream(handle, stream, _WAIT_SLICE)
    while code == _TIMED_OUT:
        code = hvd_wait_on_stream(handle, stream, _WAIT_SLICE)
    if code != _OK:
        raise_error(code)


def device_accepts(kind: int, dtype: int, reduce_op: int) -> bool:
    """Whether the engine accepts tensors on an accelerator; otherwise they must be in host memory."""
    return bool(library().hvd_device_accepts(kind, dtype, reduce_op) > 0)


def is_launched(handle: int, stream: int) -> bool:
    """Whether the operation is on streams of its device; then `stream` has been made to wait for it."""
    code = library().hvd_wait_on_stream(handle, stream, 0.0)
    if code not in (_OK, _TIMED_OUT):
        raise_error(code)
    return bool(code == _OK)


def completes_on_stream(of_gradients: bool) -> bool:
    """Whether a stream may be put behind an operation on an accelerator, instead of waiting for its end."""
    return bool(library().hvd_completes_on_stream(of_gradients) > 0)


def is_done(handle: int) -> bool:
    """Whether the operation is done; ValueError for a handle the engine does not know."""
    return checked(library().hvd_poll(handle)) != 0


def release(handle: int) -> None:
    """Release the handle."""
    library().hvd_release(handle)


class EngineMemory:
    """Memory that the engine allocated for a result, freed with its last user.

    `__array_interface__` presents it as bytes, so NumPy and other readers of that protocol can use it without a copy.
    """

    __slots__ = ("__weakref__", "_free", "address", "device", "dtype", "shape", "size_in_bytes")

    def __init__(self, tensor: Tensor) -> None:
        self.address: int = tensor.data or 0
        self.dtype: int = tensor.dtype
        self.device: int = tensor.device
        self.shape: tuple[int, ...] = tuple(tensor.shape[: tensor.ndim]) if tensor.ndim else ()
        self.size_in_bytes = math.prod(self.shape) * ITEM_SIZES[self.dtype]
        self._free = library().hvd_free

    @property
    def __array_interface__(self) -> dict[str, object]:
        return {"version": 3, "typestr": "|u1", "shape": (self.size_in_bytes,), "data": (self.address, False)}

    def __del__(self) -> None:
        if self.address:
            self._free(self.address)


def take_result(handle: int, index: int) -> EngineMemory:
    """Take over the memory of output `index` of a finished operation."""
    tensor = Tensor(struct_size=sizeof(Tensor))
    code = library().hvd_take_result(handle, index, byref(tensor))
    if code != _OK:
        raise_error(code)
    return EngineMemory(tensor)


def received_splits(handle: int, index: int) -> list[int]:
    """The rows an alltoall received from each rank of the set."""
    count = checked(library().hvd_received_splits(handle, index, None, 0))
    splits = (c_int32 * count)()
    checked(library().hvd_received_splits(handle, index, splits, count))
    return list(splits)


def result_value(handle: int) -> int:
    """The number an operation ended with: the rank that joined last."""
    return checked(library().hvd_result_value(handle))
