"""Gradients over all ranks: how a pytree of them is reduced, and `grad` and `value_and_grad` that do so."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax

from horovod._generic.compression import NoneCompressor
from horovod._generic.process_sets import ProcessSet, global_process_set
from horovod._generic.reduce_ops import Average
from horovod._generic.submission import Reduction
from horovod.common.util import split_list
from horovod.jax import verbs
from horovod.jax.trees import is_array, paths_of
from horovod.jax.world import depends_on

Groups = int | Sequence[Sequence[str]] | None


@dataclass(frozen=True)
class GradientReduction:
    """How gradients are reduced. The arguments are those of DistributedOptimizer."""

    compression: Any = NoneCompressor
    op: int = Average
    gradient_predivide_factor: float = 1.0
    groups: Groups = None
    process_set: ProcessSet = global_process_set
    name: str = "gradients"

    def __post_init__(self) -> None:
        if self.gradient_predivide_factor != 1.0 and self.op != Average:
            raise ValueError("gradient_predivide_factor needs op=hvd.Average")
        groups = self.groups
        if groups is None:
            return
        if isinstance(groups, int) and groups <= 0:
            raise ValueError(f"groups must be a positive number or lists of names of leaves, not {groups}")
        if hasattr(self.compression, "reduce"):
            raise ValueError(f"groups do not work with {type(self.compression).__name__}, which does its own exchange")

    @property
    def reduction(self) -> Reduction:
        """The reduction for the engine. Average also divides by the number of ranks."""
        factor = self.gradient_predivide_factor
        return Reduction(self.op, 1.0 / factor, factor)

    def is_needed(self) -> bool:
        """Whether there are other ranks, or may be later: programs stay compiled when an elastic world grows."""
        is_elastic = os.environ.get("HOROVOD_ELASTIC") == "1"
        if self.process_set is global_process_set and is_elastic:
            return True
        depends_on(self.process_set)
        return bool(self.process_set.included()) and (is_elastic or self.process_set.size() != 1)

    def init(self, params: Any) -> Any:
        """The state of compression between steps, as a pytree; () if none."""
        if not hasattr(self.compression, "init"):
            return ()
        return self.compression.init([leaf for leaf in jax.tree.leaves(params) if is_array(leaf)], self.process_set)

    def run(self, gradients: Any, memory: Any = ()) -> tuple[Any, Any]:
        """The reduced gradients, and the state of compression. One call of XLA for all."""
        if not self.is_needed():
            return gradients, memory
        leaves, structure = jax.tree.flatten(gradients)
        names = [f"{self.name}{path}" for path in paths_of(gradients)]
        places = [i for i, leaf in enumerate(leaves) if is_array(leaf)]  # others are not gradients: Equinox has them
        if not places:
            return gradients, memory
        arrays, own_names = [leaves[i] for i in places], [names[i] for i in places]
        if hasattr(self.compression, "reduce"):
            reduced, memory = self.compression.reduce(arrays, memory, self.name, self.reduction, self.process_set)
        else:
            reduced = self._run_dense(arrays, own_names)
        for i, leaf in zip(places, reduced, strict=True):
            leaves[i] = leaf
        return jax.tree.unflatten(structure, leaves), memory

    def _run_dense(self, arrays: list[Any], names: list[str]) -> list[Any]:
        compressed = [self.compression.compress(each) for each in arrays]
        order = [place for group in self._grouped(names) for place in group]
        sizes = [len(group) for group in self._grouped(names)]
        sent = [compressed[place][0] for place in order]
        received = verbs.reduce_named(sent, [names[i] for i in order], sizes, self.reduction, self.process_set)
        results: list[Any] = [None] * len(arrays)
        for place, each in zip(order, received, strict=True):
            results[place] = self.compression.decompress(each, compressed[place][1])
        return results

    def _grouped(self, names: list[str]) -> list[list[int]]:
        """The indices of the leaves in each group: by default one leaf per group."""
        everything = list(range(len(names)))
        if self.groups is None:
            return [[place] for place in everything]
        if isinstance(self.groups, int):
            return [list(group) for group in split_list(everything, self.groups) if group]
        by_name = {name.removeprefix(self.name): place for place, name in enumerate(names)}
        groups = []
        for wanted in self.groups:
            unknown = [name for name in wanted if name not in by_name]
            if unknown:
                raise ValueError(f"groups: no leaf is called {unknown[0]!r}; there are {', '.join(by_name)}")
            groups.append([by_name[name] for name in wanted])
        taken = [place for group in groups for place in group]
        if len(set(taken)) < len(taken):
            raise ValueError("groups: a leaf is in two groups")
        return groups + [[place] for place in everything if place not in set(taken)]


def value_and_grad(
    fun: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    *,
    compression: Any = NoneCompressor,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    groups: Groups = None,
    process_set: ProcessSet = global_process_set,
    name: str = "gradients",
    **options: Any,
) -> Callable[..., Any]:
    """As `jax.value_and_grad`, with gradients over all ranks. The value is this rank's: reduce it before printing.

    `options` are those of `jax.value_and_grad`. Inside `jit` or not.
    """
    local = jax.value_and_grad(fun, argnums, has_aux, **options)
    reduction = GradientReduction(compression, op, gradient_predivide_factor, groups, process_set, name)

    @functools.wraps(local)
    def reducing(*args: Any, **kwargs: Any) -> Any:
        value, gradients = local(*args, **kwargs)
        return value, reduction.run(gradients, None)[0]

    return reducing


def grad(
    fun: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False, **options: Any
) -> Callable[..., Any]:
    """As `jax.grad`, with gradients over all ranks. `options` are those of `value_and_grad`."""
    both = value_and_grad(fun, argnums, has_aux, **options)

    @functools.wraps(both)
    def reducing(*args: Any, **kwargs: Any) -> Any:
        value, gradients = both(*args, **kwargs)
        return (gradients, value[1]) if has_aux else gradients

    return reducing


__all__ = ["GradientReduction", "Groups", "grad", "value_and_grad"]
