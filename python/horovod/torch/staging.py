"""Tensors of an accelerator, for an engine that works in host memory: they are copied to pinned memory and back.

The engine gets the host copy of a staged tensor (StagedView). The copy to the host runs on a separate stream,
after the earlier work of the current stream; the operation is submitted when it has finished, by a thread unless the
caller waits anyway. The copy back is queued on another stream when the operation is synchronised, and the then current
stream waits for it, not the host.

Only what PyTorch documents for every device module is used (torch.cuda, torch.xpu, also torch.cpu, whose streams do
nothing): with tensors in host memory treated as staged, the tests run all of this but the streams' own work.
"""

from __future__ import annotations

import functools
import queue
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch

from horovod._generic.collectives import Collectives
from horovod._generic.handles import Pending, handles
from horovod._native import operations
from horovod._native.abi import Request
from horovod._native.library import world_failure
from horovod._native.operations import TensorView
from horovod.common.exceptions import HorovodInternalError


class _Lanes:
    """A device's streams for copies, one for each way: results must not queue up behind gradients to come."""

    def __init__(self, device: torch.device) -> None:
        module = getattr(torch, device.type, None)  # as torch.get_device_module, which raises for "meta"
        if module is None or not hasattr(module, "Stream") or not hasattr(module, "Event"):
            raise ValueError(f"tensors on the device {device.type} are not supported; pass tensor.cpu()")
        self._module: Any = module
        self._device = device
        self.is_accelerator = device.type != "cpu"
        where = {"device": device} if self.is_accelerator else {}
        self.out: Any = self._module.Stream(**where)
        self.back: Any = self._module.Stream(**where)

    def current(self) -> Any:
        return self._module.current_stream(self._device)

    def on(self, stream: Any) -> AbstractContextManager[Any]:
        context: AbstractContextManager[Any] = self._module.stream(stream)
        return context

    def event_on(self, stream: Any) -> Any:
        event = self._module.Event()
        event.record(stream)
        return event


_lanes = functools.cache(_Lanes)


class StagedView(TensorView):
    """A tensor's copy in host memory: on its way there, or waiting for a result that goes back."""

    __slots__ = ("_host", "_lanes", "_tensor", "arrived")

    def __init__(self, tensor: torch.Tensor, host: torch.Tensor, dtype: int, lanes: _Lanes, arrived: Any) -> None:
        super().__init__(host, host.data_ptr(), dtype, tuple(host.shape))
        self._tensor = tensor
        self._host = host
        self._lanes = lanes
        self.arrived = arrived  # the event after which the host copy is complete; None where nothing is copied

    @property
    def place(self) -> object:
        return self._tensor.device

    def bring_back(self) -> None:
        """Copy the host's elements into the tensor; what the current stream does next comes after that."""
        lanes = self._lanes
        current = lanes.current()
        with torch.no_grad(), lanes.on(lanes.back):
            self._tensor.detach().copy_(self._host, non_blocking=True)
        if lanes.is_accelerator:
            self._tensor.record_stream(lanes.back)
        current.wait_stream(lanes.back)


def send(tensor: torch.Tensor, dtype: int) -> StagedView:
    """Start to copy the tensor to the host."""
    lanes = _lanes(tensor.device)
    host = _host_memory(tensor, lanes)
    lanes.out.wait_stream(lanes.current())
    with torch.no_grad(), lanes.on(lanes.out):
        host.copy_(tensor.detach(), non_blocking=True)
    return StagedView(tensor, host, dtype, lanes, lanes.event_on(lanes.out))


def expect(output: torch.Tensor, source: TensorView) -> StagedView:
    """Where a result for `output` arrives on the host."""
    lanes = _lanes(output.device)
    # The allocator may have given out memory that the current stream still works on for its former owner.
    lanes.back.wait_stream(lanes.current())
    return StagedView(output, _host_memory(output, lanes), source.dtype, lanes, None)


def _host_memory(tensor: torch.Tensor, lanes: _Lanes) -> torch.Tensor:
    return torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu", pin_memory=lanes.is_accelerator)


class _StagedOperation(Pending):
    """An operation that is submitted when its tensors have arrived on the host.

    Thread rule: `submit` runs once, on the caller's thread or the submitter's; the rest as for Pending.
    """

    __slots__ = ("_error", "_requests", "_sources", "_submitted", "_targets", "_world")

    def __init__(
        self,
        requests: Sequence[Request],
        sources: Sequence[TensorView],
        targets: Sequence[TensorView] | None,
        result: Callable[[int], Any],
    ) -> None:
        super().__init__(0, (sources, targets), result)
        self._requests = requests
        self._sources = sources
        self._targets = targets or ()
        self._world = handles.world
        self._submitted = threading.Event()
        self._error: Exception | None = None  # written before _submitted is set

    def submit(self, wait_follows: bool) -> None:
        try:
            for source in self._sources:
                assert isinstance(source, StagedView)
                source.arrived.synchronize()
            if handles.world != self._world:
                raise HorovodInternalError(
                    "Horovod was shut down before the tensor had been copied to the host", origin=world_failure()
                )
            self.native = operations.submit(self._requests, wait_follows, self.memory)
        except Exception as error:
            self._error = error
        self._submitted.set()

    def wait(self) -> None:
        self._submitted.wait()
        if self._error is not None:
            raise self._error
        super().wait()

    def is_done(self) -> bool:
        return self._submitted.is_set() and (self._error is not None or super().is_done())

    def take_result(self) -> Any:
        for target in self._targets:
            assert isinstance(target, StagedView)
            target.bring_back()
        return super().take_result()

    def release(self) -> None:
        self._submitted.wait()
        if self._error is None:
            super().release()


class _Submitter:
    """Submits operations, in the order of `add`, each as soon as its tensors have arrived."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[_StagedOperation] = queue.SimpleQueue()
        threading.Thread(target=self._run, name="horovod-staging", daemon=True).start()

    def add(self, operation: _StagedOperation) -> None:
        self._queue.put(operation)

    def _run(self) -> None:
        while True:
            self._queue.get().submit(wait_follows=False)


_submitter = functools.cache(_Submitter)


class StagedCollectives(Collectives[torch.Tensor]):
    """Submits operations on staged tensors when their elements are in host memory."""

    def _start(
        self,
        requests: Sequence[Request],
        wait_follows: bool,
        sources: Sequence[TensorView],
        targets: Sequence[TensorView] | None,
        result: Callable[[int], Any],
    ) -> Pending:
        """Submit staged tensors at once if the caller waits for them anyway, else in the background."""
        if not isinstance(sources[0], StagedView):
            return super()._start(requests, wait_follows, sources, targets, result)
        operation = _StagedOperation(requests, sources, targets, result)
        if wait_follows:
            operation.submit(wait_follows=True)
        else:
            _submitter().add(operation)
        return operation
