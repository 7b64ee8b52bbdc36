"""Every verb, once, over abstract tensors. A framework's package binds its public functions to an instance.

Thread rule: any thread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from horovod._generic.allreduce import Allreduce
from horovod._generic.handles import Pending, handles
from horovod._generic.process_sets import ProcessSet, global_process_set
from horovod._generic.rooted import Rooted
from horovod._generic.submission import id_of
from horovod._generic.tensors import T
from horovod._native.abi import WORLD_SET, Kind
from horovod._native.operations import result_value


class Collectives(Allreduce[T], Rooted[T]):
    """The collective operations on the tensors of one framework."""

    # ---- broadcast

    def _broadcast(
        self,
        tensor: T,
        in_place: bool,
        root_rank: int,
        name: str | None,
        process_set: ProcessSet,
        wait_follows: bool,
    ) -> tuple[int, Pending]:
        if in_place:
            output = tensor
            sources = targets = self._views("broadcast", name, [tensor], self._tensors.view_to_write)
        else:
            sources = self._views("broadcast", name, [tensor], self._tensors.view)
            output = self._tensors.empty_like(tensor)
            targets = [self._tensors.view_result(output, sources[0])]
        return self._submit(
            wait_follows,
            Kind.BROADCAST,
            "broadcast",
            name,
            process_set,
            sources,
            targets,
            lambda _: output,
            root_rank=root_rank,
        )

    def broadcast(
        self, tensor: T, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
    ) -> T:
        """Return the tensor of `root_rank`, which is a rank of the world also in a smaller set."""
        result: T = handles.finish(*self._broadcast(tensor, False, root_rank, name, process_set, True))
        return result

    def broadcast_async(
        self, tensor: T, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
    ) -> int:
        """Start a broadcast and return its handle."""
        return handles.add(*self._broadcast(tensor, False, root_rank, name, process_set, False))

    def broadcast_(
        self, tensor: T, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
    ) -> T:
        """Replace the tensor by that of `root_rank`, and return it."""
        result: T = handles.finish(*self._broadcast(tensor, True, root_rank, name, process_set, True))
        return result

    def broadcast_async_(
        self, tensor: T, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
    ) -> int:
        """Start a broadcast in place and return its handle."""
        return handles.add(*self._broadcast(tensor, True, root_rank, name, process_set, False))

    def broadcast_parameters(self, params: Mapping[str, T] | Sequence[Any], root_rank: int) -> None:
        """Replace all tensors of a dict, or of a list of tensors or `(name, tensor)` pairs, by those of `root_rank`."""
        if isinstance(params, Mapping):
            named: list[tuple[str | None, T]] = [(name, params[name]) for name in sorted(params)]
        elif isinstance(params, list):
            named = [each if isinstance(each, tuple) else (None, each) for each in params]
        else:
            raise ValueError(f"params must be a dict or a list, not {type(params).__name__}")
        for handle in [self.broadcast_async_(tensor, root_rank, name) for name, tensor in named]:
            handles.synchronize(handle)

    # ---- without tensors

    def join(self, device: int = -1) -> int:
        """Report that this rank has no more data, wait until all ranks have, and return the last rank.

        Meanwhile the other ranks' allreduces use zeros for this rank; Average still divides by the full size.
        `device` is the GPU for these zeros; -1 means the one that this rank used last, or else that of its local rank.
        """
        rank: int = self._signal(Kind.JOIN, "join.noname", WORLD_SET, result_value, device)
        return rank

    def barrier(self, process_set: ProcessSet = global_process_set) -> None:
        """Wait until all ranks of the set have called this."""
        self._signal(Kind.BARRIER, "barrier.noname", id_of(process_set), lambda _: None)

    # ---- handles

    def poll(self, handle: int) -> bool:
        """Return whether the operation is done, so that `synchronize` will not block; ValueError if unknown."""
        return handles.poll(handle)

    def synchronize(self, handle: int) -> Any:
        """Wait for the operation and return its result; None if the handle is unknown.

        A failed operation raises HorovodInternalError, and its handle is forgotten.
        """
        return handles.synchronize(handle)
