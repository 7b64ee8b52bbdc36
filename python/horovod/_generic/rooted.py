"""The verbs in which one rank is the source or the target: reduce, gather, scatter; send and receive.

Thread rule: any thread.
"""

from __future__ import annotations

import collections
import threading

from horovod._generic.gathering import Gathering
from horovod._generic.handles import Pending, handles
from horovod._generic.process_sets import ProcessSet, global_process_set
from horovod._generic.reduce_ops import Average
from horovod._generic.submission import Reduction
from horovod._generic.tensors import T
from horovod._native import operations
from horovod._native.abi import WORLD_SET, Kind
from horovod._native.library import checked, library


class _Messages:
    """How many messages went each way, which is their name. All frameworks of the process share them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._world = -1
        self._counts: dict[tuple[Kind, int, int], int] = {}

    def next_name(self, kind: Kind, peer: int, tag: int) -> str:
        with self._lock:
            if self._world != handles.world:
                self._world, self._counts = handles.world, collections.defaultdict(int)
            number = self._counts[kind, peer, tag]
            self._counts[kind, peer, tag] = number + 1
            return f"{tag}#{number}"


_messages = _Messages()


class Rooted(Gathering[T]):
    """The verbs named reduce, gather, scatter, send and recv."""

    def _reduce(
        self, tensor: T, root_rank: int, op: int, name: str | None, process_set: ProcessSet, wait_follows: bool
    ) -> tuple[int, Pending]:
        is_root = checked(library().hvd_rank()) == root_rank
        sources = self._views("reduce", name, [tensor], self._tensors.view)
        output = self._tensors.empty_like(tensor) if is_root else None
        targets = None if output is None else [self._tensors.view_result(output, sources[0])]
        reduction = Reduction(op, 1.0, 1.0)
        return self._submit(
            wait_follows,
            Kind.REDUCE,
            "reduce",
            name,
            process_set,
            sources,
            targets,
            lambda _: output,
            reduction,
            root_rank,
        )

    def reduce(
        self,
        tensor: T,
        root_rank: int,
        op: int = Average,
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
    ) -> T | None:
        """Return the reduction of the tensors of all ranks on `root_rank`, a rank of the world, and None elsewhere."""
        result: T | None = handles.finish(*self._reduce(tensor, root_rank, op, name, process_set, True))
        return result

    def reduce_async(
        self,
        tensor: T,
        root_rank: int,
        op: int = Average,
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
    ) -> int:
        """Start a reduce and return its handle."""
        return handles.add(*self._reduce(tensor, root_rank, op, name, process_set, False))

    def _gather(
        self, tensor: T, root_rank: int, name: str | None, process_set: ProcessSet, wait_follows: bool
    ) -> tuple[int, Pending]:
        is_root = checked(library().hvd_rank()) == root_rank
        sources = self._views("gather", name, [tensor], self._tensors.view)

        def result(native: int) -> T | None:
            return self._take(native, 0, tensor) if is_root else None

        return self._submit(
            wait_follows, Kind.GATHER, "gather", name, process_set, sources, None, result, root_rank=root_rank
        )

    def gather(
        self, tensor: T, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
    ) -> T | None:
        """Return the tensors of all ranks, concatenated as by allgather, on `root_rank`, and None elsewhere."""
        result: T | None = handles.finish(*self._gather(tensor, root_rank, name, process_set, True))
        return result

    def gather_async(
        self, tensor: T, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
    ) -> int:
        """Start a gather and return its handle."""
        return handles.add(*self._gather(tensor, root_rank, name, process_set, False))

    def _scatter(
        self, tensor: T, root_rank: int, name: str | None, process_set: ProcessSet, wait_follows: bool
    ) -> tuple[int, Pending]:
        sources = self._views("scatter", name, [tensor], self._tensors.view)
        result = self._taker([tensor], False)
        return self._submit(
            wait_follows, Kind.SCATTER, "scatter", name, process_set, sources, None, result, root_rank=root_rank
        )

    def scatter(
        self, tensor: T, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
    ) -> T:
        """Return this rank's rows of the tensor of `root_rank`, divided as by reducescatter.

        As for broadcast, all ranks give a tensor of the same shape and type; only the root's elements are used.
        """
        result: T = handles.finish(*self._scatter(tensor, root_rank, name, process_set, True))
        return result

    def scatter_async(
        self, tensor: T, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
    ) -> int:
        """Start a scatter and return its handle."""
        return handles.add(*self._scatter(tensor, root_rank, name, process_set, False))

    # ---- point to point

    def _transfer(self, kind: Kind, tensor: T, peer: int, tag: int, wait_follows: bool) -> tuple[int, Pending]:
        verb = "send" if kind == Kind.SEND else "recv"
        look = self._tensors.view if kind == Kind.SEND else self._tensors.view_to_write
        views = self._views(verb, f"tag {tag}", [tensor], look)
        if not 0 <= peer < checked(library().hvd_size()) or peer == checked(library().hvd_rank()):
            raise ValueError(f"{verb}: there is no other rank {peer} in this world")
        number = handles.next_number()
        name = _messages.next_name(kind, peer, tag)
        request = operations.make_request(kind, name, views[0], views[0], process_set=WORLD_SET, root_rank=peer)
        return number, self._start([request], wait_follows, views, views, lambda _: tensor)

    def send(self, tensor: T, target: int, tag: int = 0) -> None:
        """Send the tensor to the rank `target`, which receives it by `recv`; both give the same shape and type.

        The messages of a tag between two ranks arrive in order. Returns when the other rank has it.
        """
        handles.finish(*self._transfer(Kind.SEND, tensor, target, tag, True))

    def send_async(self, tensor: T, target: int, tag: int = 0) -> int:
        """Start a send and return its handle."""
        return handles.add(*self._transfer(Kind.SEND, tensor, target, tag, False))

    def recv(self, tensor: T, source: int, tag: int = 0) -> T:
        """Replace the tensor's elements by those that the rank `source` sends, and return it."""
        result: T = handles.finish(*self._transfer(Kind.RECEIVE, tensor, source, tag, True))
        return result

    def recv_async(self, tensor: T, source: int, tag: int = 0) -> int:
        """Start a receive and return its handle; `synchronize` gives the tensor."""
        return handles.add(*self._transfer(Kind.RECEIVE, tensor, source, tag, False))
