"""The same initial state on all ranks: parameters, states of optimizers and random keys."""

from __future__ import annotations

from typing import Any

import jax

from horovod._generic.objects import allgather_object, broadcast_object
from horovod._generic.process_sets import ProcessSet, global_process_set
from horovod.jax import verbs
from horovod.jax.sharded_state import refuse_pieces
from horovod.jax.trees import is_array
from horovod.jax.world import rank


def broadcast_parameters(
    params: Any, root_rank: int = 0, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Any:
    """Return the pytree of `root_rank`; all ranks need the same structure. Arrays are immutable: use the result.

    For parameters of any library and states of optax. Leaves that are not numbers (functions) are unchanged.
    """
    refuse_pieces(params, "broadcast_parameters")
    leaves, structure = jax.tree.flatten(params)
    arrays = {i: leaf for i, leaf in enumerate(leaves) if is_array(leaf)}
    if arrays:
        # Ranks that disagree on the structure would send different arrays under the same names.
        sent = verbs.broadcast(list(arrays.values()), root_rank, name, process_set)
        for i, leaf in zip(arrays, sent, strict=True):
            leaves[i] = leaf
    return jax.tree.unflatten(structure, leaves)


broadcast_optimizer_state = broadcast_parameters


def fold_in_rank(key: Any) -> Any:
    """Return a random key for this rank, derived from a common one: for dropout or augmentation.

    In a compiled function it is compiled again when the rank changes. Use the common key to initialise parameters.
    """
    return jax.random.fold_in(key, rank())


__all__ = [
    "allgather_object",
    "broadcast_object",
    "broadcast_optimizer_state",
    "broadcast_parameters",
    "fold_in_rank",
]
