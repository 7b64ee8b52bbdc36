"""What the engine is asked: requests over the flat memory of tensors. Paid by every operation, so what repeats is made
once. Thread rule: any thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import byref, c_int32, c_int64, sizeof
from functools import lru_cache
from typing import Any

import torch

from horovod._native import operations
from horovod._native.abi import HOST_DEVICE, Code, DType, Handle, ReduceOp, Request, SubmitOptions, Tensor
from horovod._native.library import library
from horovod.torch.distributed.errors import error_of

DTYPES: dict[torch.dtype, int] = {
    getattr(torch, code.name.lower()): int(code) for code in DType if hasattr(torch, code.name.lower())
}
_BYTES = int(DType.UINT8)
_OK = int(Code.OK)
_WAIT_FOLLOWS = byref(SubmitOptions(struct_size=sizeof(SubmitOptions), wait_follows=1))

_Kind = torch.distributed.ReduceOp.RedOpType
REDUCE_OPS: dict[Any, int] = {
    _Kind.SUM: int(ReduceOp.SUM),
    _Kind.AVG: int(ReduceOp.AVERAGE),
    _Kind.PRODUCT: int(ReduceOp.PRODUCT),
    _Kind.MIN: int(ReduceOp.MIN),
    _Kind.MAX: int(ReduceOp.MAX),
    _Kind.BAND: int(ReduceOp.BIT_AND),
    _Kind.BOR: int(ReduceOp.BIT_OR),
    _Kind.BXOR: int(ReduceOp.BIT_XOR),
    _Kind.PREMUL_SUM: int(ReduceOp.SUM),
}


@lru_cache(maxsize=4096)
def _template(
    kind: int,
    dtype: int,
    shape: tuple[int, ...],
    out_shape: tuple[int, ...],
    process_set: int,
    root: int,
    reduce_op: int,
    prescale: float,
) -> tuple[bytes, object]:
    sizes, out_sizes = (c_int64 * len(shape))(*shape), (c_int64 * len(out_shape))(*out_shape)
    source = Tensor(struct_size=sizeof(Tensor), dtype=dtype, device=HOST_DEVICE, ndim=len(shape), shape=sizes)
    target = Tensor(struct_size=sizeof(Tensor), dtype=dtype, device=HOST_DEVICE, ndim=len(out_shape), shape=out_sizes)
    request = Request(
        struct_size=sizeof(Request),
        kind=kind,
        reduce_op=reduce_op,
        process_set=process_set,
        root_rank=root,
        prescale_factor=prescale,
        postscale_factor=1.0,
        input=source,
        output=target,
    )
    return bytes(request), (sizes, out_sizes)


def make(
    kind: int,
    name: str,
    source: int,
    target: int,
    dtype: int,
    shape: tuple[int, ...],
    out_shape: tuple[int, ...],
    process_set: int = 0,
    root: int = -1,
    reduce_op: int = 1,
    prescale: float = 1.0,
    splits: Sequence[int] = (),
) -> Request:
    """A request that reads at the address `source` and writes at `target`."""
    template = _template(kind, dtype, shape, out_shape, process_set, root, reduce_op, prescale)
    request = Request.from_buffer_copy(template[0])
    request.template = template  # the bytes point into it
    request.name = name.encode()
    request.input.data = source
    request.output.data = target
    if splits:
        request.splits = (c_int32 * len(splits))(*splits)
        request.splits_count = len(splits)
    return request


def submit(requests: Sequence[Request], wait_follows: bool) -> int:
    """Hand over one request, or several as a group with one handle."""
    handle = Handle()
    count = len(requests)
    group = requests[0] if count == 1 else (Request * count)(*requests)
    code = library().hvd_submit(group, count, _WAIT_FOLLOWS if wait_follows else None, byref(handle))
    if code != _OK:
        raise error_of(code)
    return handle.value


def in_bytes(dtype: torch.dtype, elements: int) -> tuple[int, int]:
    """How elements travel where nothing is computed: type and number; as bytes if the engine does not know the type."""
    code = DTYPES.get(dtype)
    return (_BYTES, elements * dtype.itemsize) if code is None else (code, elements)


def is_sum(op: Any) -> bool:
    """Whether the reduction adds up."""
    return reduction_of(op)[0] in (ReduceOp.SUM, ReduceOp.AVERAGE)


def reduction_of(op: Any) -> tuple[int, float, torch.Tensor | None]:
    """The engine's operation, a factor for the inputs, and a tensor to multiply them with."""
    kind = op.op if hasattr(op, "op") else op
    code = REDUCE_OPS.get(kind)
    if code is None:
        raise ValueError(f'the backend "hvd" does not support {kind}')
    if kind == _Kind.PREMUL_SUM:
        factor = op.__getstate__()[1]
        if isinstance(factor, torch.Tensor):
            return code, 1.0, factor
        return code, float(factor), None
    return code, 1.0, None


def result_address(handle: int) -> int:
    """Where the result of a finished operation is."""
    tensor = Tensor(struct_size=sizeof(Tensor))
    if library().hvd_result(handle, 0, byref(tensor)) != _OK:
        return 0
    return tensor.data or 0


keep = operations.keep
release = operations.release
__all__ = ["DTYPES", "in_bytes", "is_sum", "keep", "make", "reduction_of", "release", "result_address", "submit"]
