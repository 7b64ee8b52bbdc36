"""Small functions that scripts and the other modules of this package use."""

from __future__ import annotations

import os
from collections.abc import Hashable, Sequence
from typing import Any

import tensorflow as tf

from horovod._generic.reduce_ops import choose_reduce_op
from horovod.common.util import num_rank_is_power_2


def _executing_eagerly() -> bool:
    """Return whether operations run at once, which is so outside graphs and `tf.function`."""
    return bool(tf.executing_eagerly())


def is_elastic() -> bool:
    """Return whether the number of ranks may change while a graph is in use."""
    return os.environ.get("HOROVOD_ELASTIC", "0") not in ("", "0")


def check_num_rank_power_of_2(num_rank: int) -> None:
    """Raise NotImplementedError unless Adasum works with that many ranks."""
    if not num_rank_is_power_2(num_rank):
        raise NotImplementedError(f"Adasum needs a number of ranks that is a power of two, not {num_rank}")


def handle_average_backwards_compatibility(op: int | None, average: bool | None) -> int:
    """Return the reduce op that the arguments `op` and `average` (deprecated) ask for."""
    return choose_reduce_op(op, average)


class _Reference:
    """Compares a variable by identity, as `tf.Variable.ref()` does; for Keras 3's variables, which have none."""

    def __init__(self, variable: Any) -> None:
        self._variable = variable

    def deref(self) -> Any:
        return self._variable

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Reference) and self._variable is other._variable

    def __hash__(self) -> int:
        return id(self._variable)


def vars_to_refs(vars: Any) -> Hashable:
    """Return what can be a key of a dict in place of a variable, or of a nested list of them."""
    if isinstance(vars, Sequence):
        return tuple(vars_to_refs(each) for each in vars)
    reference: Hashable = vars.ref() if hasattr(vars, "ref") else _Reference(vars)
    return reference


def refs_to_vars(refs: Any) -> Any:
    """Undo `vars_to_refs`; nested tuples come back as lists."""
    if isinstance(refs, Sequence):
        return [refs_to_vars(each) for each in refs]
    return refs.deref()
