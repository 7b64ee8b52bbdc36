"""The divided state when the ranks change: kept, taken from a loaded one, moved to its new owners, or lost.

All ranks of the set say once per world what they have (`exchange`), and come to the same verdict (`judge`): ranks and
processes need not be the same as before, even where their number is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from enum import Enum, IntEnum
from typing import Any

import torch

from horovod._generic.handles import handles
from horovod._generic.objects import allgather_object_in
from horovod.common.process_sets import ProcessSet, global_process_set


@dataclass(frozen=True)
class Place:
    """Where this process stood among the ranks that share a state, and in which world. Equal ones need no exchange."""

    world: int
    set_id: int | None
    members: tuple[int, ...]  # empty: all ranks of the world
    rank: int
    size: int

    @staticmethod
    def now(process_set: ProcessSet) -> Place:
        """ValueError if the set is not registered, as after a change of the world."""
        if process_set.process_set_id is None:
            raise ValueError(
                f"{process_set} is not registered; after a change of the world, add it again before its optimizer is "
                "used"
            )
        members = () if process_set is global_process_set else tuple(process_set.ranks or ())
        is_member = process_set is global_process_set or bool(process_set.included())
        rank, size = (process_set.rank(), process_set.size()) if is_member else (0, 1)
        return Place(handles.world, process_set.process_set_id, members, rank or 0, size or 1)


class Has(IntEnum):
    """A rank's part of the state."""

    NOTHING = 0  # as before the first step
    ALL = 1  # loaded, not stepped since
    PIECE = 2
    TORN = 3  # a step failed after it had changed the piece


@dataclass(frozen=True)
class Holding:
    """A rank's part, as reported to the others."""

    has: Has
    rank: int  # whose piece it is,
    size: int  # of how many,
    steps: int  # and after how many steps


class Verdict(Enum):
    """The action of all ranks."""

    KEEP = "every rank has the piece that it needs"
    CUT = "every rank has all of it, or there is none yet"
    MOVE = "all pieces exist, on other ranks"


def exchange(mine: Holding, place: Place, process_set: ProcessSet) -> list[Holding]:
    """The parts of all ranks. Collective over the set, unless this process is alone."""
    if place.size == 1:
        return [mine]
    everyones = allgather_object_in(process_set, astuple(mine), "sharded.world")
    return [Holding(Has(has), rank, size, steps) for has, rank, size, steps in everyones]


def judge(holdings: Sequence[Holding]) -> Verdict:
    """The action for this number of ranks; RuntimeError if parts are missing or do not belong together."""
    ranks_with = {has: [rank for rank, each in enumerate(holdings) if each.has == has] for has in Has}
    if ranks_with[Has.TORN]:
        raise RuntimeError(
            f"the last step failed halfway on {_ranks(ranks_with[Has.TORN])}, and the world has changed since; "
            f"{_REMEDY}"
        )
    pieces = [each for each in holdings if each.has == Has.PIECE]
    if ranks_with[Has.ALL]:
        if len(ranks_with[Has.ALL]) < len(holdings):
            raise RuntimeError(
                f"only {_ranks(ranks_with[Has.ALL])} of {len(holdings)} loaded a state of the optimizer; load it on "
                "all, or call hvd.broadcast_optimizer_state"
            )
        return Verdict.CUT
    if not pieces:
        return Verdict.CUT
    size = pieces[0].size
    if len({(each.size, each.steps) for each in pieces}) > 1 or sorted(e.rank for e in pieces) != list(range(size)):
        raise RuntimeError(
            f"the world has {len(holdings)} ranks now, and the optimizer cannot continue: pieces of its state are lost "
            f"with ranks that left, or are from different steps ({_list(pieces)}); {_REMEDY}"
        )
    in_place = len(pieces) == len(holdings) and all(each.rank == rank for rank, each in enumerate(holdings))
    return Verdict.KEEP if in_place else Verdict.MOVE


_REMEDY = (
    "call load_state_dict with a state_dict() of before on all ranks, as hvd.elastic.TorchState does for "
    "optimizers that it holds"
)


def _ranks(numbers: Sequence[int]) -> str:
    return f"rank{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"


def _list(pieces: Sequence[Holding]) -> str:
    return ", ".join(f"{each.rank + 1} of {each.size} after {each.steps} steps" for each in pieces)


def gather_entries(
    entries: dict[str, Any] | None, holdings: Sequence[Holding], process_set: ProcessSet, name: str
) -> dict[str, list[Any]]:
    """For every entry of a bucket's state the parts of all pieces, in the order of the old ranks. Collective.

    Travels pickled: a newcomer does not know what there is. One bucket at a time, so memory is bounded.
    """
    sent = None if entries is None else {key: _on_host(value) for key, value in entries.items()}
    everyones = allgather_object_in(process_set, sent, name) if len(holdings) > 1 else [sent]
    pieces = [(holding.rank, their) for holding, their in zip(holdings, everyones, strict=True) if their is not None]
    ordered = [their for _, their in sorted(pieces, key=lambda each: each[0])]
    return {key: [their[key] for their in ordered] for key in (ordered[0] if ordered else {})}


def _on_host(value: Any) -> Any:
    return value.detach().cpu() if isinstance(value, torch.Tensor) else value
