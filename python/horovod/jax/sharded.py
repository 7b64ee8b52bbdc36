"""An optimizer whose state is divided among the ranks (ZeRO stage 1), for optax.

An update: gradients are reduced and scattered, so that every rank has the result for its piece of the parameters; the
wrapped optimizer, which has only the state of that piece, computes its updates; they are gathered. The bytes on
the network equal those of an allreduce, and the memory for the state is divided by the number of ranks.

All parameters of a type are one vector, which is cut into one piece per rank.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import optax

from horovod._generic.process_sets import ProcessSet, global_process_set
from horovod._generic.reduce_ops import Average, Sum
from horovod.jax import verbs
from horovod.jax.sharded_state import Lengths, ShardedState, WholeState, cut, place_in
from horovod.jax.trees import is_array
from horovod.jax.world import depends_on

Vectors = dict[str, Any]  # by type of the elements


class _Layout:
    """The positions of a pytree's arrays in the vectors. Other leaves are not included."""

    def __init__(self, tree: Any) -> None:
        leaves, self._structure = jax.tree.flatten(tree)
        self._others = {i: leaf for i, leaf in enumerate(leaves) if not is_array(leaf)}
        self._shapes = {i: jnp.shape(leaf) for i, leaf in enumerate(leaves) if is_array(leaf)}
        self.members: dict[str, list[int]] = {}
        for i in self._shapes:
            self.members.setdefault(str(jnp.asarray(leaves[i]).dtype), []).append(i)

    def flatten(self, tree: Any) -> Vectors:
        """The arrays of a pytree of this layout, end to end."""
        leaves = jax.tree.leaves(tree)
        return {
            name: jnp.concatenate([jnp.reshape(leaves[i], -1).astype(name) for i in places])
            for name, places in self.members.items()
        }

    def unflatten(self, vectors: Vectors) -> Any:
        """The pytree."""
        leaves: dict[int, Any] = dict(self._others)
        for name, places in self.members.items():
            start = 0
            for i in places:
                stop = start + math.prod(self._shapes[i])
                leaves[i] = vectors[name][start:stop].reshape(self._shapes[i])
                start = stop
        return jax.tree.unflatten(self._structure, [leaves[i] for i in sorted(leaves)])


def ShardedOptimizer(  # noqa: N802
    optimizer: optax.GradientTransformation,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    max_norm: float | None = None,
    name: str = "ShardedOptimizer",
) -> optax.GradientTransformationExtraArgs:
    """Return an optimizer that applies the given one to the gradients of all ranks, and divides its state.

    The given one must treat every element separately, as adam, adamw and sgd do: it gets pieces, not layers, so
    `clip_by_global_norm`, lars or masks by layer do not work. To clip the norm of the reduced gradients pass
    `max_norm`. Parameters must be the same on all ranks. For use inside `jit` or not. `gather_sharded_state` returns
    the whole state.
    """
    if op not in (Average, Sum):
        raise ValueError("ShardedOptimizer reduces with hvd.Average or hvd.Sum")
    wrapped = optax.with_extra_args_support(optimizer)

    def init(params: Any) -> ShardedState:
        rank, ranks = place_in(process_set)
        vectors = _Layout(params).flatten(params)
        depends_on(process_set)
        inner = wrapped.init({kind: cut(vector, rank, ranks) for kind, vector in vectors.items()})
        return ShardedState(inner, _lengths_of(wrapped, vectors), rank, ranks)

    def update(gradients: Any, state: Any, params: Any = None, **extra: Any) -> tuple[Any, ShardedState]:
        rank, ranks = place_in(process_set)
        _check(state, rank, ranks)
        layout = _Layout(gradients)
        vectors = layout.flatten(gradients)
        depends_on(process_set)
        pieces = _reduce(vectors, ranks)
        if max_norm is not None:
            pieces = _clip(pieces, ranks, max_norm)
        own = None
        if params is not None:
            own = {kind: cut(vector, rank, ranks) for kind, vector in _Layout(params).flatten(params).items()}
            if own.keys() != pieces.keys():
                raise ValueError(f"gradients of types {', '.join(pieces)} for parameters of types {', '.join(own)}")
        updates, inner = wrapped.update(pieces, state.inner, own, **extra)
        whole = _gather(updates, ranks)
        return layout.unflatten(whole), ShardedState(inner, state.lengths, rank, ranks)

    def _reduce(vectors: Vectors, ranks: int) -> Vectors:
        if ranks == 1 or not vectors:
            return vectors
        padded = [jnp.pad(each, (0, -each.size % ranks)) for each in vectors.values()]
        reduced = verbs.grouped_reducescatter(padded, f"{name}.gradients", op=op, process_set=process_set)
        return dict(zip(vectors, reduced, strict=True))

    def _clip(pieces: Vectors, ranks: int, norm: float) -> Vectors:
        square = sum(jnp.square(jnp.abs(each).astype(jnp.float32)).sum() for each in pieces.values())
        if ranks > 1:
            square = verbs.allreduce(jnp.asarray(square), op=Sum, name=f"{name}.norm", process_set=process_set)
        factor = jnp.minimum(norm / (jnp.sqrt(square) + 1e-6), 1.0)
        return {kind: each * factor.astype(each.dtype) for kind, each in pieces.items()}

    def _gather(updates: Vectors, ranks: int) -> Vectors:
        if ranks == 1 or not updates:
            return updates
        gathered = verbs.grouped_allgather(list(updates.values()), f"{name}.updates", process_set)
        return dict(zip(updates, gathered, strict=True))

    return optax.GradientTransformationExtraArgs(init, update)


def _check(state: Any, rank: int, ranks: int) -> None:
    if isinstance(state, WholeState):
        raise ValueError("this is the whole state of a ShardedOptimizer: pass hvd.scatter_sharded_state(state)")
    if (state.rank, state.ranks) != (rank, ranks):
        raise ValueError(
            f"the state is the piece of rank {state.rank} of {state.ranks}, and this is rank {rank} of {ranks}: in a "
            "new world, divide the committed state with hvd.scatter_sharded_state"
        )


def _lengths_of(optimizer: optax.GradientTransformation, vectors: Vectors) -> Lengths:
    """The vector of which each leaf of the optimizer's state is a piece: the one with the leaf's length."""

    def shapes(lengths: dict[str, int]) -> list[Any]:
        pieces = {kind: jax.ShapeDtypeStruct((length,), vectors[kind].dtype) for kind, length in lengths.items()}
        return [each.shape for each in jax.tree.leaves(jax.eval_shape(optimizer.init, pieces))]

    before = shapes(dict.fromkeys(vectors, 2))
    found = [-1] * len(before)
    for kind, vector in vectors.items():
        changed = shapes({other: 3 if other == kind else 2 for other in vectors})
        for i, (old, new) in enumerate(zip(before, changed, strict=True)):
            if old != new:
                found[i] = vector.size
    return tuple(found)


__all__ = ["ShardedOptimizer"]
