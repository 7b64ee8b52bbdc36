"""The state of a ShardedOptimizer: this rank's piece of it, and the whole for checkpoints and for another world.

Thread rule: plain data and functions.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from horovod._generic.process_sets import ProcessSet, global_process_set
from horovod.jax import verbs

Lengths = tuple[int, ...]  # per leaf of the wrapped optimizer's state: of the vector it is a piece of; -1: of none


@functools.partial(jax.tree_util.register_dataclass, data_fields=["inner"], meta_fields=["lengths", "rank", "ranks"])
@dataclass(frozen=True)
class ShardedState:
    """The state of one rank. It is useless on other ranks."""

    inner: Any
    lengths: Lengths
    rank: int
    ranks: int


@functools.partial(jax.tree_util.register_dataclass, data_fields=["inner"], meta_fields=["lengths"])
@dataclass(frozen=True)
class WholeState:
    """The combined state of all ranks: for checkpoints and commits, and to be divided for a world of any size."""

    inner: Any
    lengths: Lengths


def place_in(process_set: ProcessSet) -> tuple[int, int]:
    """Rank and size in the set. A rank that does not belong to the set works alone."""
    if not process_set.included():
        return 0, 1
    return process_set.rank() or 0, process_set.size() or 1


def cut(vector: Any, rank: int, ranks: int) -> Any:
    """The piece of a vector that belongs to a rank: all have the same length, the last ones end with zeros."""
    length = -(-vector.size // ranks)
    padded = jnp.pad(vector, (0, length * ranks - vector.size))
    return padded[rank * length : (rank + 1) * length]


def gather_sharded_state(state: ShardedState, process_set: ProcessSet = global_process_set) -> WholeState:
    """Return the states of all ranks of the set as one, the same everywhere. Collective."""
    if not isinstance(state, ShardedState):
        raise TypeError(f"gather_sharded_state takes the state of a ShardedOptimizer, not {type(state).__name__}")
    leaves, structure = jax.tree.flatten(state.inner)
    pieces = {i: leaf for i, (leaf, length) in enumerate(zip(leaves, state.lengths, strict=True)) if length >= 0}
    if pieces and state.ranks > 1:
        gathered = verbs.grouped_allgather(list(pieces.values()), "sharded.state", process_set)
        pieces = dict(zip(pieces, gathered, strict=True))
    for i, whole in pieces.items():
        leaves[i] = whole[: state.lengths[i]]
    return WholeState(jax.tree.unflatten(structure, leaves), state.lengths)


def scatter_sharded_state(state: WholeState, process_set: ProcessSet = global_process_set) -> ShardedState:
    """Return this rank's piece of a state that is the same on all ranks. Does not communicate."""
    if not isinstance(state, WholeState):
        raise TypeError(f"scatter_sharded_state takes what gather_sharded_state returned, not {type(state).__name__}")
    rank, ranks = place_in(process_set)
    leaves, structure = jax.tree.flatten(state.inner)
    pairs = zip(leaves, state.lengths, strict=True)
    own = [leaf if length < 0 else cut(jnp.asarray(leaf), rank, ranks) for leaf, length in pairs]
    return ShardedState(jax.tree.unflatten(structure, own), state.lengths, rank, ranks)


def _is_piece(value: Any) -> bool:
    return isinstance(value, ShardedState)


def refuse_pieces(tree: Any, verb: str) -> None:
    """ValueError if a pytree that should be equal on all ranks contains the piece of one rank."""
    leaves = jax.tree.leaves(tree, is_leaf=_is_piece)
    if any(map(_is_piece, leaves)):
        raise ValueError(
            f"{verb}: the state of a ShardedOptimizer is this rank's own; pass hvd.gather_sharded_state(state), and "
            "use hvd.scatter_sharded_state on the result"
        )


__all__ = ["ShardedState", "WholeState", "gather_sharded_state", "scatter_sharded_state"]
