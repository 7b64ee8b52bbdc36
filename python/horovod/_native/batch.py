"""Requests that are submitted repeatedly, many at a time: the gradients of a training step.

They are contiguous in memory and are described once; a step only updates the addresses of their data and submits a
whole range of them with one call of the library.

Thread rule: one thread at a time, as for the optimizer that owns it.
"""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import Array, c_int64, memset, sizeof
from typing import Any

from horovod._native.abi import HOST_DEVICE, WORLD_SET, Code, Handle, Kind, Request, SubmitOptions, Tensor
from horovod._native.library import library, raise_error

_OK = int(Code.OK)
_TIMED_OUT = int(Code.TIMED_OUT)
# A wait is cut into slices of this many seconds, because Python delivers signals (Ctrl-C) between calls only.
_WAIT_SLICE = 0.2

_REQUEST_BYTES = sizeof(Request)
_REQUEST_WORDS = _REQUEST_BYTES // 8
_HANDLE_BYTES = sizeof(Handle)
_INPUT_DATA = (Request.input.offset + Tensor.data.offset) // 8
_OUTPUT_DATA = (Request.output.offset + Tensor.data.offset) // 8
_WAIT_FOLLOWS = SubmitOptions(struct_size=sizeof(SubmitOptions), wait_follows=1)
_WORK_FOLLOWS = SubmitOptions(struct_size=sizeof(SubmitOptions), wait_follows=2)


class Batch:
    """`count` allreduces in place, each with its own name, and their handles."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._requests: Array[Request] = (Request * count)()
        self._handles: Array[c_int64] = (Handle * count)()
        # The same memory as numbers: storing one costs a tenth of setting a field of a field.
        self._words: Any = (c_int64 * (count * _REQUEST_WORDS)).from_buffer(self._requests)
        self._kept: list[object] = [None] * count
        self._library = library()

    def describe(
        self,
        index: int,
        name: str,
        dtype: int,
        shape: Sequence[int],
        reduce_op: int,
        process_set: int = WORLD_SET,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
    ) -> None:
        """Describe request `index`."""
        sizes = (c_int64 * len(shape))(*shape)
        encoded = name.encode()
        tensor = Tensor(struct_size=sizeof(Tensor), dtype=dtype, device=HOST_DEVICE, ndim=len(shape), shape=sizes)
        self._requests[index] = Request(
            struct_size=_REQUEST_BYTES,
            kind=Kind.ALLREDUCE,
            reduce_op=reduce_op,
            process_set=process_set,
            root_rank=-1,
            name=encoded,
            prescale_factor=prescale_factor,
            postscale_factor=postscale_factor,
            input=tensor,
            output=tensor,
        )
        self._kept[index] = (sizes, encoded)  # copying a struct into an array does not keep what it points to

    def point(self, start: int, addresses: Sequence[int]) -> None:
        """Set the addresses of the data of the requests from `start` on."""
        words = self._words
        place = start * _REQUEST_WORDS
        for address in addresses:
            words[place + _INPUT_DATA] = address
            words[place + _OUTPUT_DATA] = address
            place += _REQUEST_WORDS

    def _stretch(self, start: int, stop: int, wait_follows: bool) -> tuple[Request, int, SubmitOptions, c_int64]:
        first = Request.from_buffer(self._requests, start * _REQUEST_BYTES)
        handle = Handle.from_buffer(self._handles, start * _HANDLE_BYTES)
        return first, stop - start, _WAIT_FOLLOWS if wait_follows else _WORK_FOLLOWS, handle

    def submit(self, start: int, stop: int, wait_follows: bool) -> None:
        """Submit the requests [start, stop), each on its own; a `wait` follows, at once or after other work.

        On failure some may be in flight, see `in_flight`; `wait` for them and `release` them as usual.
        """
        code = self._library.hvd_submit_many(*self._stretch(start, stop, wait_follows))
        if code != _OK:
            raise_error(code)

    def submit_group(self, start: int, stop: int, wait_follows: bool) -> None:
        """Submit the requests [start, stop) as a group, which becomes ready, and succeeds or fails, as a whole."""
        code = self._library.hvd_submit(*self._stretch(start, stop, wait_follows))
        if code != _OK:
            raise_error(code)

    def in_flight(self, index: int) -> bool:
        """Whether request `index` (or the group that begins with it) was submitted and not released since."""
        return self._handles[index] != 0

    def is_done(self, index: int) -> bool:
        """Whether request `index` was submitted and has ended."""
        handle = self._handles[index]
        return handle != 0 and self._library.hvd_poll(handle) == 1

    def wait(self) -> None:
        """Wait until all requests in flight are done, and raise if one failed. Interruptible: all handles stay."""
        hvd_wait_many = self._library.hvd_wait_many
        code = hvd_wait_many(self._handles, self._count, _WAIT_SLICE)
        while code == _TIMED_OUT:
            code = hvd_wait_many(self._handles, self._count, _WAIT_SLICE)
        if code != _OK:
            raise_error(code)

    def wait_except(self, indices: Sequence[int]) -> None:
        """As `wait`, but leave out the requests `indices`; those waited for are released, unless interrupted."""
        handles = (Handle * self._count).from_buffer_copy(self._handles)
        for index in indices:
            handles[index] = 0
        hvd_wait_many = self._library.hvd_wait_many
        code = hvd_wait_many(handles, self._count, _WAIT_SLICE)
        while code == _TIMED_OUT:
            code = hvd_wait_many(handles, self._count, _WAIT_SLICE)
        try:
            if code != _OK:
                raise_error(code)
        finally:
            left = [self._handles[index] for index in indices]
            self._library.hvd_release_many(handles, self._count)
            memset(self._handles, 0, self._count * _HANDLE_BYTES)
            for index, handle in zip(indices, left, strict=True):
                self._handles[index] = handle

    def release(self) -> None:
        """Release all handles; requests in flight continue, so their memory must stay."""
        self._library.hvd_release_many(self._handles, self._count)
        memset(self._handles, 0, self._count * _HANDLE_BYTES)
