"""The validated arguments of a distributed Keras optimizer; the same for every version of Keras."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from horovod._generic.reduce_ops import Average, Sum
from horovod.common.process_sets import ProcessSet, global_process_set

Groups = int | Sequence[Sequence[Any]] | None


@dataclass(frozen=True)
class Settings:
    """The arguments of DistributedOptimizer. They belong to the class of the optimizer, so `from_config` keeps them."""

    compression: Any
    name: str | None = None
    device_dense: str = ""
    device_sparse: str = ""
    sparse_as_dense: bool = False
    gradient_predivide_factor: float = 1.0
    op: Any = Average
    backward_passes_per_step: int = 1
    average_aggregated_gradients: bool = False
    groups: Groups = None
    process_set: ProcessSet = global_process_set
    scale_local_gradients: bool = True

    def __post_init__(self) -> None:
        if self.op not in (Average, Sum):
            raise ValueError("op must be hvd.Average or hvd.Sum: Keras optimizers cannot combine gradients otherwise")
        if self.gradient_predivide_factor != 1.0 and self.op != Average:
            raise ValueError("gradient_predivide_factor needs op=hvd.Average")
        if self.backward_passes_per_step <= 0:
            raise ValueError(f"backward_passes_per_step must be 1 or more, not {self.backward_passes_per_step}")
        groups = self.groups
        if groups is None:
            return
        if isinstance(groups, int):
            if groups <= 0:
                raise ValueError(f"groups must be a positive number or a list of lists of variables, not {groups}")
        elif not isinstance(groups, (list, tuple)) or not all(isinstance(each, (list, tuple)) for each in groups):
            raise ValueError("groups must be a positive number or a list of lists of variables")


def chosen_groups(groups: Groups, num_groups: int) -> Groups:
    """`groups`, or the older `num_groups` with a warning."""
    if num_groups != 0:
        warnings.warn("num_groups is deprecated, pass groups=<number> instead", DeprecationWarning, stacklevel=3)
        if groups is None:
            return num_groups
    return groups


__all__ = ["Groups", "Settings", "chosen_groups"]
