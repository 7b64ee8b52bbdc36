"""The collectives that compressors use.

They go to the engine directly and take no operation number: the progress of an exchange differs between ranks, and
the numbers, which name the unnamed operations, must not.

Thread rule: any thread.
"""

from __future__ import annotations

import torch

from horovod._generic.handles import Pending
from horovod._generic.reduce_ops import Sum
from horovod._generic.submission import id_of
from horovod._native import operations
from horovod._native.abi import Kind
from horovod._native.library import library
from horovod._native.operations import TensorView
from horovod.common.process_sets import ProcessSet
from horovod.torch.tensors import TorchTensors

_tensors = TorchTensors()


class Operation(Pending):
    """A collective in flight, and its memory."""

    __slots__ = ()

    def is_done(self) -> bool:
        """Whether `take` will not block, including when the operation no longer exists."""
        return operations.is_over(self.native)

    def wait_for(self, seconds: float) -> None:
        """Wait until it is done or the time is over; `take` returns the result."""
        library().hvd_wait(self.native, seconds)

    def take(self) -> torch.Tensor:
        """The result of an operation that is done; raises if it failed."""
        self.wait()
        result: torch.Tensor = self.take_result()
        self.release()
        return result


def _submit(
    kind: Kind,
    name: str,
    process_set: ProcessSet,
    source: torch.Tensor,
    target: torch.Tensor | None,
    op: int = Sum,
    factors: tuple[float, float] = (1.0, 1.0),
) -> Operation:
    """Without a target the engine allocates. The result is where the source was."""
    device = source.device
    host_source = source.cpu().contiguous()
    view: TensorView = _tensors.view(host_source)
    target_view = None if target is None else _tensors.view_to_write(target)
    verb = kind.name.lower()
    request = operations.make_request(kind, f"{verb}.{name}", view, target_view, op, id_of(process_set), -1, *factors)

    def result(native: int) -> torch.Tensor:
        output = _tensors.adopt(operations.take_result(native, 0), host_source) if target is None else target
        return output.to(device)

    memory = (view, target_view)
    return Operation(operations.submit([request], False, memory), memory, result)


def allreduce(
    tensor: torch.Tensor,
    name: str,
    process_set: ProcessSet,
    op: int = Sum,
    prescale: float = 1.0,
    postscale: float = 1.0,
) -> Operation:
    """Start a reduction over the ranks."""
    target = torch.empty(tensor.shape, dtype=tensor.dtype)
    return _submit(Kind.ALLREDUCE, name, process_set, tensor, target, op, (prescale, postscale))


def allgather(tensor: torch.Tensor, name: str, process_set: ProcessSet) -> Operation:
    """Start a concatenation of all ranks' rows."""
    return _submit(Kind.ALLGATHER, name, process_set, tensor, None)


def alltoall(tensor: torch.Tensor, name: str, process_set: ProcessSet) -> Operation:
    """Start sending one row to each rank."""
    return _submit(Kind.ALLTOALL, name, process_set, tensor, None)


def reducescatter(
    tensor: torch.Tensor, name: str, process_set: ProcessSet, op: int, prescale: float, postscale: float
) -> Operation:
    """Start a reduction over the ranks of which each gets its rows."""
    return _submit(Kind.REDUCESCATTER, name, process_set, tensor, None, op, (prescale, postscale))
