"""Optimizers for distributed training: `DistributedOptimizer` reduces gradients over all ranks before it steps,
`ShardedOptimizer` also divides the optimizer's state among the ranks.
"""

from __future__ import annotations

import inspect
import os
import warnings
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import torch

from horovod._generic.objects import broadcast_object
from horovod._generic.reduce_ops import Adasum, Average
from horovod._native import elastic
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.torch import mpi_ops
from horovod.torch.compression import Compression, is_reducing
from horovod.torch.optimizer.adasum import AdasumMethods
from horovod.torch.optimizer.distributed import DistributedMethods
from horovod.torch.optimizer.names import check_groups, name_parameters, parameters_of, split_evenly
from horovod.torch.optimizer.sending import Wire
from horovod.torch.optimizer.sharded import ShardedOptimizer

Methods = TypeVar("Methods", DistributedMethods, AdasumMethods)

# Under these names libraries ask whether an optimizer is wrapped.
_DistributedOptimizer = DistributedMethods
_DistributedAdasumOptimizer = AdasumMethods


def DistributedOptimizer(  # noqa: N802
    optimizer: torch.optim.Optimizer,
    named_parameters: Iterable[tuple[str, torch.Tensor]] | None = None,
    compression: Any = Compression.none,
    backward_passes_per_step: int = 1,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: int | Sequence[Sequence[torch.Tensor]] | None = None,
    sparse_as_dense: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Return an optimizer like `optimizer` that steps with the gradients of all ranks.

    Its class has the name of the given one and is derived from it. Gradients are reduced while backward computes them,
    after `backward_passes_per_step` passes, whose gradients are summed. The state of `optimizer` is not taken over.
    """
    if gradient_predivide_factor != 1.0 and op != Average:
        raise ValueError("gradient_predivide_factor needs op=hvd.Average")
    if num_groups != 0:
        warnings.warn("num_groups is deprecated; use groups", DeprecationWarning, stacklevel=2)
        groups = num_groups if groups is None else groups
    if backward_passes_per_step <= 0:
        raise ValueError(f"backward_passes_per_step must be positive, not {backward_passes_per_step}")
    is_reducing(compression)  # raises for a class if an object is needed
    check_groups(groups)
    may_have_others = mpi_ops.is_initialized() and (mpi_ops.size() > 1 or elastic.is_worker())
    if op == Adasum and may_have_others:
        return _adasum_optimizer(optimizer, named_parameters, compression, backward_passes_per_step, process_set)
    names = name_parameters(optimizer, named_parameters)
    wire = Wire(
        op,
        1.0 / gradient_predivide_factor,
        gradient_predivide_factor,
        compression,
        sparse_as_dense,
        process_set,
    )
    active = (mpi_ops.size() > 1 or os.environ.get("HOROVOD_ELASTIC") == "1") and bool(process_set.included())
    grouped = _agree_on_groups(optimizer, names, groups, process_set) if active else []
    twin = _with_methods(optimizer, DistributedMethods)
    twin._begin(names, wire, backward_passes_per_step, gradient_predivide_factor, grouped, active)
    return twin


def _adasum_optimizer(
    optimizer: torch.optim.Optimizer,
    named_parameters: Iterable[tuple[str, torch.Tensor]] | None,
    compression: Any,
    passes: int,
    process_set: ProcessSet,
) -> AdasumMethods:
    names = name_parameters(optimizer, named_parameters, "allreduce.noname.{total}")
    if process_set.process_set_id != global_process_set.process_set_id:
        raise NotImplementedError("Adasum works on the global process set only")
    twin = _with_methods(optimizer, AdasumMethods)
    twin._begin(names, compression, passes, process_set)
    return twin


def _agree_on_groups(
    optimizer: torch.optim.Optimizer,
    names: dict[torch.Tensor, str],
    groups: int | Sequence[Sequence[torch.Tensor]] | None,
    process_set: ProcessSet,
) -> list[list[str]]:
    """The names of the parameters in each group, as the first rank of the set has them: a group is the same on all."""
    if groups is None:
        return []
    if isinstance(groups, int):
        mine = split_evenly([names[each] for each in parameters_of(optimizer) if each.requires_grad], groups)
    else:
        mine = [[names[each] for each in group if each in names] for group in groups]
    if elastic.is_worker():
        return mine  # a worker that joins is alone here: the others train, and cannot take part in a broadcast
    first = (process_set.ranks or [0])[0]
    agreed: list[list[str]] = broadcast_object(mine, first, "optimizer.groups", process_set)
    return agreed


def _with_methods(optimizer: torch.optim.Optimizer, methods: type[Methods]) -> Methods:
    """A new optimizer over the parameter groups of the given one, whose class has these methods as well."""
    base = type(optimizer)
    cls: type[Methods] = type(base.__name__, (methods, base), {"__module__": __name__})
    accepted = inspect.signature(base.__init__).parameters
    options = {name: value for name, value in optimizer.defaults.items() if name in accepted}
    twin = cls.__new__(cls)
    try:
        base.__init__(twin, optimizer.param_groups, **options)
    except TypeError:  # a user's class that needs more arguments: use the class they were turned into
        twin.__dict__.update(optimizer.__dict__)
        twin.state = defaultdict(dict)
    return twin


__all__ = ["DistributedOptimizer", "ShardedOptimizer"]
