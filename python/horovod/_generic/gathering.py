"""The verbs whose result's size depends on other ranks: allgather, alltoall, reducescatter. The engine allocates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from horovod._generic.compression import Compressor, NoneCompressor
from horovod._generic.handles import Pending, handles
from horovod._generic.process_sets import ProcessSet, global_process_set
from horovod._generic.reduce_ops import Average
from horovod._generic.submission import Reduction, Submission, called, framework_outputs
from horovod._generic.tensors import T
from horovod._native.abi import Kind
from horovod._native.operations import received_splits, take_result


class Gathering(Submission[T]):
    """The verbs named allgather, alltoall and reducescatter. Results are in the engine's memory, without a copy."""

    def _take(self, native: int, index: int, like: T) -> T:
        outputs = framework_outputs.get(native)
        capsule = None if outputs is None else outputs.take(index)
        if capsule is not None:
            return self._tensors.adopt_output(capsule, like)
        return self._tensors.adopt(take_result(native, index), like)

    def _taker(self, tensors: Sequence[T], grouped: bool) -> Callable[[int], Any]:
        def result(native: int) -> Any:
            outputs = tuple(self._take(native, i, tensor) for i, tensor in enumerate(tensors))
            return outputs if grouped else outputs[0]

        return result

    # ---- allgather

    def _allgather(
        self, tensors: Sequence[T], name: str | None, process_set: ProcessSet, wait_follows: bool, grouped: bool
    ) -> tuple[int, Pending]:
        verb = "grouped_allgather" if grouped else "allgather"
        sources = self._views(verb, name, tensors, self._tensors.view)
        return self._submit(
            wait_follows,
            Kind.ALLGATHER,
            verb,
            name,
            process_set,
            sources,
            None,
            self._taker(tensors, grouped),
            grouped=grouped,
        )

    def allgather(self, tensor: T, name: str | None = None, process_set: ProcessSet = global_process_set) -> T:
        """Return the tensors of all ranks of the set, concatenated along the first dimension in rank order.

        The first dimension may differ between ranks and may be 0; the others may not differ.
        """
        result: T = handles.finish(*self._allgather([tensor], name, process_set, True, False))
        return result

    def allgather_async(self, tensor: T, name: str | None = None, process_set: ProcessSet = global_process_set) -> int:
        """Start an allgather and return its handle."""
        return handles.add(*self._allgather([tensor], name, process_set, False, False))

    def grouped_allgather(
        self, tensors: Sequence[T], name: str | None = None, process_set: ProcessSet = global_process_set
    ) -> tuple[T, ...]:
        """Return the allgathers of the tensors, which are one operation."""
        result: tuple[T, ...] = handles.finish(*self._allgather(tensors, name, process_set, True, True))
        return result

    def grouped_allgather_async(
        self, tensors: Sequence[T], name: str | None = None, process_set: ProcessSet = global_process_set
    ) -> int:
        """Start a grouped allgather and return its one handle; `synchronize` gives a tuple."""
        return handles.add(*self._allgather(tensors, name, process_set, False, True))

    # ---- alltoall

    def _alltoall(
        self, tensor: T, splits: Any, name: str | None, process_set: ProcessSet, wait_follows: bool
    ) -> tuple[int, Pending]:
        def result(native: int) -> tuple[T, T]:
            return self._take(native, 0, tensor), self._tensors.make_splits(received_splits(native, 0), splits)

        rows = () if splits is None else self._read_splits(splits, name)
        sources = self._views("alltoall", name, [tensor], self._tensors.view)
        return self._submit(
            wait_follows, Kind.ALLTOALL, "alltoall", name, process_set, sources, None, result, splits=rows
        )

    def _read_splits(self, splits: Any, name: str | None) -> Sequence[int]:
        try:
            return self._tensors.read_splits(splits)
        except ValueError as error:
            raise ValueError(f"{called('alltoall', name)}: {error}") from None

    def alltoall(
        self, tensor: T, splits: Any = None, name: str | None = None, process_set: ProcessSet = global_process_set
    ) -> T | tuple[T, T]:
        """Send `splits[r]` rows to each rank r of the set and return the received rows in rank order.

        Without splits the rows are divided evenly and only the output is returned; with splits, `(output,
        received_splits)`. Rows beyond the sum of the splits are not sent.
        """
        output, received = handles.finish(*self._alltoall(tensor, splits, name, process_set, True))
        return output if splits is None else (output, received)

    def alltoall_async(
        self, tensor: T, splits: Any = None, name: str | None = None, process_set: ProcessSet = global_process_set
    ) -> int:
        """Start an alltoall and return its handle; `synchronize` always gives `(output, received_splits)`."""
        return handles.add(*self._alltoall(tensor, splits, name, process_set, False))

    # ---- reducescatter

    def _reducescatter(
        self,
        tensors: Sequence[T],
        reduction: Reduction,
        name: str | None,
        process_set: ProcessSet,
        wait_follows: bool,
        grouped: bool,
    ) -> tuple[int, Pending]:
        verb = "grouped_reducescatter" if grouped else "reducescatter"
        sources = self._views(verb, name, tensors, self._tensors.view)
        return self._submit(
            wait_follows,
            Kind.REDUCESCATTER,
            verb,
            name,
            process_set,
            sources,
            None,
            self._taker(tensors, grouped),
            reduction,
            grouped=grouped,
        )

    def reducescatter(
        self,
        tensor: T,
        name: str | None = None,
        compression: type[Compressor] = NoneCompressor,
        op: int = Average,
        process_set: ProcessSet = global_process_set,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
    ) -> T:
        """Reduce over all ranks of the set and return this rank's rows of the result.

        The first `rows % size` ranks get one row more than the others. Only Sum and Average.
        """
        reduction = Reduction(op, prescale_factor, postscale_factor)
        small, context = compression.compress(tensor)
        reduced = handles.finish(*self._reducescatter([small], reduction, name, process_set, True, False))
        result: T = compression.decompress(reduced, context)
        return result

    def reducescatter_async(
        self,
        tensor: T,
        name: str | None = None,
        op: int = Average,
        process_set: ProcessSet = global_process_set,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
    ) -> int:
        """Start a reducescatter and return its handle."""
        reduction = Reduction(op, prescale_factor, postscale_factor)
        return handles.add(*self._reducescatter([tensor], reduction, name, process_set, False, False))

    def grouped_reducescatter(
        self,
        tensors: Sequence[T],
        name: str | None = None,
        compression: type[Compressor] = NoneCompressor,
        op: int = Average,
        process_set: ProcessSet = global_process_set,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
    ) -> list[T]:
        """Return the reducescatters of the tensors, which are one operation."""
        reduction = Reduction(op, prescale_factor, postscale_factor)
        small = [compression.compress(tensor) for tensor in tensors]
        inputs = [tensor for tensor, _ in small]
        reduced = handles.finish(*self._reducescatter(inputs, reduction, name, process_set, True, True))
        return [compression.decompress(tensor, context) for tensor, (_, context) in zip(reduced, small, strict=True)]

    def grouped_reducescatter_async(
        self,
        tensors: Sequence[T],
        name: str | None = None,
        op: int = Average,
        process_set: ProcessSet = global_process_set,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
    ) -> int:
        """Start a grouped reducescatter and return its one handle; `synchronize` gives a tuple."""
        reduction = Reduction(op, prescale_factor, postscale_factor)
        return handles.add(*self._reducescatter(tensors, reduction, name, process_set, False, True))
