"""Arrays and whole pytrees as lists of arrays, and back. Random keys are sent as their data.

Thread rule: plain functions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from horovod.jax.types import is_key


@dataclass(frozen=True)
class Flat:
    """The arrays of a pytree."""

    arrays: list[Any]
    is_tree: bool  # not a single array
    rebuild: Callable[[Sequence[Any]], Any]  # from arrays to the pytree

    @property
    def is_traced(self) -> bool:
        """Whether some are not concrete, because a function is being traced."""
        return any(isinstance(each, jax.core.Tracer) for each in self.arrays)


def flatten(tree: Any) -> Flat:
    """Flatten a pytree. Numbers and NumPy's arrays become arrays of JAX."""
    leaves, structure = jax.tree.flatten(tree)
    keys = [jax.random.key_impl(leaf) if is_key(leaf) else None for leaf in leaves]

    def rebuild(arrays: Sequence[Any]) -> Any:
        wrapped = [
            array if impl is None else jax.random.wrap_key_data(array, impl=impl)
            for array, impl in zip(arrays, keys, strict=True)
        ]
        return jax.tree.unflatten(structure, wrapped)

    arrays = [
        jax.random.key_data(leaf) if impl is not None else leaf if isinstance(leaf, jax.Array) else jnp.asarray(leaf)
        for leaf, impl in zip(leaves, keys, strict=True)
    ]
    return Flat(arrays, not jax.tree_util.treedef_is_leaf(structure), rebuild)


def paths_of(tree: Any) -> list[str]:
    """The names of a pytree's leaves, as in `params['dense']['kernel']`."""
    return [jax.tree_util.keystr(path) or "value" for path, _ in jax.tree_util.tree_leaves_with_path(tree)]


def is_array(leaf: Any) -> bool:
    """Whether a leaf holds numbers; others, such as the functions in Equinox's modules, are not sent."""
    return (hasattr(leaf, "shape") and hasattr(leaf, "dtype")) or isinstance(leaf, (bool, int, float, complex))
