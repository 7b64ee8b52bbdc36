"""The parameters of a collective besides arrays: the same for one that runs now and for a compiled one.

Thread rule: plain data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from horovod._native.abi import WORLD_SET, Kind

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Call:
    """One collective on some arrays. Hashable, because JAX compares it."""

    kind: Kind
    verb: str
    names: tuple[str, ...]  # in the negotiation, one per array
    groups: tuple[int, ...]  # number of arrays in each group, in order
    op: int = 0
    prescale_factor: float = 1.0
    postscale_factor: float = 1.0
    process_set: int = WORLD_SET
    root_rank: int = -1
    splits: tuple[int, ...] = ()  # alltoall
    received: tuple[int, ...] = ()  # alltoall with splits, compiled: the rows from each rank
    gathered: tuple[int, ...] = ()  # allgather, compiled: the rows of each result, if ranks have different numbers
    ranks: int = 0  # of the set, and this one's rank in it; only if results depend on them
    rank: int = 0

    def result_shapes(self, shapes: Sequence[Shape]) -> list[Shape]:
        """The shapes of results that are compiled: all ranks have the same number of rows."""
        return [self._result_shape(i, shape) for i, shape in enumerate(shapes)]

    def _result_shape(self, index: int, shape: Shape) -> Shape:
        if self.kind in (Kind.ALLREDUCE, Kind.BROADCAST):
            return shape
        if not shape:
            raise ValueError(f"{self.verb} needs arrays with rows, not a scalar")
        rows, *rest = shape
        if self.kind == Kind.ALLGATHER:
            rows = self.gathered[index] if self.gathered else rows * self.ranks
        elif self.kind == Kind.REDUCESCATTER:
            rows = rows_of_rank(rows, self.ranks, self.rank)[1]
        elif self.splits:
            rows = sum(self.received)
        elif rows % self.ranks:
            raise ValueError(f"{self.verb}: {rows} rows cannot be divided by {self.ranks} ranks; pass splits")
        return (rows, *rest)


def rows_of_rank(rows: int, ranks: int, rank: int) -> tuple[int, int]:
    """The rows of a rank in reducescatter: the first, and their number. The first ranks get the remaining rows."""
    each, more = divmod(rows, ranks)
    return rank * each + min(rank, more), each + (rank < more)


def wire_names(verb: str, name: str, count: int, grouped: bool) -> tuple[str, ...]:
    """The names of the arrays of one call, as in the packages of the other frameworks."""
    if not grouped:
        return (f"{verb}.{name}",)
    return tuple(f"{verb}.{name}_{i + 1}of{count}" for i in range(count))


def attributes_of(call: Call) -> dict[str, Any]:
    """The call as attributes of a custom call of XLA; src/adapters/jax/call.h reads them."""
    return {
        "kind": np.int64(call.kind),
        "reduce_op": np.int64(call.op),
        "process_set": np.int64(call.process_set),
        "root_rank": np.int64(call.root_rank),
        "prescale_factor": np.float64(call.prescale_factor),
        "postscale_factor": np.float64(call.postscale_factor),
        "verb": call.verb,
        "names": "\n".join(call.names),
        "groups": _text(call.groups),
        "splits": _text(call.splits),
    }


def _text(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers))
