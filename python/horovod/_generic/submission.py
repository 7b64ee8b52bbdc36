"""Shared by the verbs: naming, requests and submission.

Names in the negotiation are `<verb>.<name>`; without a name `<verb>.noname.<number of the operation>`, so unnamed
operations match only if all ranks issue the same sequence. Members of a group get `_<i>of<n>`.

Thread rule: any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple
from weakref import WeakValueDictionary

from horovod._generic.handles import Pending, handles
from horovod._generic.on_stream import StreamPending, free_names
from horovod._generic.process_sets import ProcessSet
from horovod._generic.tensors import T, Tensors
from horovod._native import operations
from horovod._native.abi import HOST_DEVICE, Kind, Request
from horovod._native.dlpack import Outputs
from horovod._native.exceptions import HorovodInternalError
from horovod._native.operations import TensorView


class Reduction(NamedTuple):
    """The arguments that the reducing verbs share."""

    op: int
    prescale_factor: float
    postscale_factor: float


_NO_REDUCTION = Reduction(0, 1.0, 1.0)

# By the engine's handle. Not in an object: a function of a package that is pickled takes the object of verbs along.
framework_outputs: WeakValueDictionary[int, Outputs] = WeakValueDictionary()


def called(verb: str, name: str | None) -> str:
    """The name of an operation in error messages."""
    return f"{verb} of {'an unnamed tensor' if name is None else name}"


def id_of(process_set: ProcessSet) -> int:
    """The id of a registered set; ValueError otherwise."""
    if process_set.process_set_id is None:
        raise ValueError(f"{process_set} is not registered: pass it to hvd.init() or hvd.add_process_set()")
    return process_set.process_set_id


class Submission(Generic[T]):
    """Submits operations on the tensors of one framework. Base of the classes that hold the verbs."""

    def __init__(self, tensors: Tensors[T]) -> None:
        self._tensors = tensors

    def _views(
        self, verb: str, name: str | None, tensors: Sequence[T], look: Callable[[T], TensorView]
    ) -> list[TensorView]:
        """Look at the tensors with a method of Tensors; an error says which tensor it is about."""
        views: list[TensorView] = []
        try:
            for tensor in tensors:
                views.append(look(tensor))
        except ValueError as error:
            place = f", tensor {len(views) + 1} of {len(tensors)}" if len(tensors) > 1 else ""
            raise ValueError(f"{called(verb, name)}{place}: {error}") from None
        return views

    def _submit(
        self,
        wait_follows: bool,
        kind: Kind,
        verb: str,
        name: str | None,
        process_set: ProcessSet,
        sources: Sequence[TensorView],
        targets: Sequence[TensorView] | None,
        result: Callable[[int], Any],
        reduction: Reduction = _NO_REDUCTION,
        root_rank: int = -1,
        splits: Sequence[int] = (),
        grouped: bool = False,
    ) -> tuple[int, Pending]:
        """Submit and return the operation's number and what `handles` needs. Without targets the engine allocates."""
        process_set_id = id_of(process_set)
        if name is not None and not isinstance(name, str):
            raise TypeError(f"the name of an operation is a str, not {type(name).__name__}: {name!r}")
        number = handles.next_number()
        full_name = self._full_name(verb, f"noname.{number}" if name is None else name)
        names = self._member_names(full_name, len(sources)) if grouped else [full_name]
        if grouped:
            _check_group(full_name, sources)
        op, prescale_factor, postscale_factor = reduction
        requests = [
            operations.make_request(
                kind,
                names[i],
                source,
                None if targets is None else targets[i],
                op,
                process_set_id,
                root_rank,
                prescale_factor,
                postscale_factor,
                splits,
            )
            for i, source in enumerate(sources)
        ]
        return number, self._start(requests, wait_follows, sources, targets, result)

    def _full_name(self, verb: str, name: str) -> str:
        """The operation's name on the wire. Overridden where a framework has other names."""
        return f"{verb}.{name}"

    def _member_names(self, full_name: str, count: int) -> list[str]:
        """The names of a group's members."""
        return [f"{full_name}_{i + 1}of{count}" for i in range(count)]

    def _start(
        self,
        requests: Sequence[Request],
        wait_follows: bool,
        sources: Sequence[TensorView],
        targets: Sequence[TensorView] | None,
        result: Callable[[int], Any],
    ) -> Pending:
        """Hand the requests to the engine. Overridden where the elements may not be in memory yet."""
        outputs = self._tensors.outputs_for(sources) if targets is None else None
        memory = (sources, targets, outputs)
        if sources[0].device != HOST_DEVICE:
            free_names(requests)
        native = operations.submit(requests, wait_follows, memory, outputs)
        if outputs is not None:
            framework_outputs[native] = outputs
        elif framework_outputs:
            framework_outputs.pop(native, None)  # of an operation of an earlier world
        if sources[0].device == HOST_DEVICE or targets is None:
            return Pending(native, memory, result)
        return StreamPending(native, memory, result, requests, lambda: self._tensors.current_stream(sources[0]))

    def _signal(
        self, kind: Kind, name: str, process_set_id: int, result: Callable[[int], Any], device: int = -1
    ) -> Any:
        """Run an operation without tensors."""
        number = handles.next_number()
        request = operations.make_signal(kind, name, process_set_id, device)
        return handles.finish(number, Pending(operations.submit([request], True), None, result))


def _check_group(full_name: str, sources: Sequence[TensorView]) -> None:
    if not sources:
        raise ValueError(f"{full_name} needs at least one tensor")
    if any(source.place != sources[0].place for source in sources):
        raise HorovodInternalError(f"the tensors of {full_name} are on different devices")
