"""Allreduce in its eight forms: single or grouped, into new memory or in place, blocking or not."""

from __future__ import annotations

from collections.abc import Sequence

from horovod._generic.compression import Compressor, NoneCompressor
from horovod._generic.handles import Pending, handles
from horovod._generic.process_sets import ProcessSet, global_process_set
from horovod._generic.reduce_ops import Adasum, choose_reduce_op
from horovod._generic.submission import Reduction, Submission
from horovod._generic.tensors import T
from horovod._native.abi import WORLD_SET, Kind


class Allreduce(Submission[T]):
    """The verbs named allreduce. A group is one operation: its members become ready, and succeed or fail, together."""

    def _allreduce(
        self,
        tensors: Sequence[T],
        in_place: bool,
        reduction: Reduction,
        name: str | None,
        process_set: ProcessSet,
        wait_follows: bool,
        grouped: bool,
    ) -> tuple[int, Pending]:
        """A group's result is a tuple."""
        if reduction.op == Adasum and process_set.process_set_id != WORLD_SET:
            raise NotImplementedError("Adasum works on the global process set only")
        verb = "grouped_allreduce" if grouped else "allreduce"
        outputs: Sequence[T]
        if in_place:
            outputs = tensors
            sources = targets = self._views(verb, name, tensors, self._tensors.view_to_write)
        else:
            sources = self._views(verb, name, tensors, self._tensors.view)
            outputs = [self._tensors.empty_like(tensor) for tensor in tensors]
            targets = list(map(self._tensors.view_result, outputs, sources))
        result = tuple(outputs) if grouped else outputs[0]
        return self._submit(
            wait_follows,
            Kind.ALLREDUCE,
            verb,
            name,
            process_set,
            sources,
            targets,
            lambda _: result,
            reduction,
            grouped=grouped,
        )

    def allreduce(
        self,
        tensor: T,
        average: bool | None = None,
        name: str | None = None,
        compression: type[Compressor] = NoneCompressor,
        op: int | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
    ) -> T:
        """Return the element-wise reduction of the tensor over all ranks of the set; the input is not changed."""
        reduction = Reduction(choose_reduce_op(op, average), prescale_factor, postscale_factor)
        small, context = compression.compress(tensor)
        reduced = handles.finish(*self._allreduce([small], False, reduction, name, process_set, True, False))
        result: T = compression.decompress(reduced, context)
        return result

    def allreduce_async(
        self,
        tensor: T,
        average: bool | None = None,
        name: str | None = None,
        op: int | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
    ) -> int:
        """Start an allreduce and return its handle; do not change the input until it is done."""
        reduction = Reduction(choose_reduce_op(op, average), prescale_factor, postscale_factor)
        return handles.add(*self._allreduce([tensor], False, reduction, name, process_set, False, False))

    def allreduce_(
        self,
        tensor: T,
        average: bool | None = None,
        name: str | None = None,
        op: int | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
    ) -> T:
        """Replace the tensor by its reduction over all ranks of the set, and return it."""
        reduction = Reduction(choose_reduce_op(op, average), prescale_factor, postscale_factor)
        result: T = handles.finish(*self._allreduce([tensor], True, reduction, name, process_set, True, False))
        return result

    def allreduce_async_(
        self,
        tensor: T,
        average: bool | None = None,
        name: str | None = None,
        op: int | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
    ) -> int:
        """Start an allreduce in place and return its handle."""
        reduction = Reduction(choose_reduce_op(op, average), prescale_factor, postscale_factor)
        return handles.add(*self._allreduce([tensor], True, reduction, name, process_set, False, False))

    def grouped_allreduce(
        self,
        tensors: Sequence[T],
        average: bool | None = None,
        name: str | None = None,
        compression: type[Compressor] = NoneCompressor,
        op: int | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
    ) -> list[T]:
        """Return the reductions of the tensors, which are one operation: all or none is executed."""
        reduction = Reduction(choose_reduce_op(op, average), prescale_factor, postscale_factor)
        small = [compression.compress(tensor) for tensor in tensors]
        inputs = [tensor for tensor, _ in small]
        reduced = handles.finish(*self._allreduce(inputs, False, reduction, name, process_set, True, True))
        return [compression.decompress(tensor, context) for tensor, (_, context) in zip(reduced, small, strict=True)]

    def grouped_allreduce_async(
        self,
        tensors: Sequence[T],
        average: bool | None = None,
        name: str | None = None,
        op: int | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
    ) -> int:
        """Start a grouped allreduce and return its one handle; `synchronize` gives a tuple."""
        reduction = Reduction(choose_reduce_op(op, average), prescale_factor, postscale_factor)
        return handles.add(*self._allreduce(tensors, False, reduction, name, process_set, False, True))

    def grouped_allreduce_(
        self,
        tensors: Sequence[T],
        average: bool | None = None,
        name: str | None = None,
        op: int | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
    ) -> tuple[T, ...]:
        """Replace the tensors by their reductions, and return them."""
        reduction = Reduction(choose_reduce_op(op, average), prescale_factor, postscale_factor)
        result: tuple[T, ...] = handles.finish(
            *self._allreduce(tensors, True, reduction, name, process_set, True, True)
        )
        return result

    def grouped_allreduce_async_(
        self,
        tensors: Sequence[T],
        average: bool | None = None,
        name: str | None = None,
        op: int | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
    ) -> int:
        """Start a grouped allreduce in place and return its one handle."""
        reduction = Reduction(choose_reduce_op(op, average), prescale_factor, postscale_factor)
        return handles.add(*self._allreduce(tensors, True, reduction, name, process_set, False, True))
