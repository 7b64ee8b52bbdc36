"""Reducing gradients: shared by DistributedOptimizer and DistributedTrainer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from mxnet.ndarray import NDArray

from horovod._generic.compression import Compressor
from horovod._generic.process_sets import ProcessSet
from horovod._generic.reduce_ops import Sum
from horovod._generic.submission import Reduction, called
from horovod.common.util import split_list
from horovod.mxnet.arrays import check, host_copy, is_on_host, write
from horovod.mxnet.mpi_ops import reduce_in_place


class Gradient(NamedTuple):
    """A gradient, and the parameter's number, which is its name and its priority; the first is the most urgent."""

    index: Any
    order: int
    array: NDArray


class Reducer:
    """Sums gradients in place over the ranks of a set. To average them, multiply their scale by `scale`."""

    def __init__(
        self,
        process_set: ProcessSet,
        predivide_factor: float,
        num_groups: int,
        compression: type[Compressor],
        prefix: str = "",
    ) -> None:
        if predivide_factor <= 0:
            raise ValueError(f"gradient_predivide_factor must be greater than 0, not {predivide_factor}")
        if num_groups < 0:
            raise ValueError(f"num_groups must be 0 or more, not {num_groups}")
        self.process_set = process_set
        self._predivide_factor = predivide_factor
        self._num_groups = num_groups
        self._compression = compression
        self._prefix = prefix

    @property
    def is_needed(self) -> bool:
        """Whether this rank is in the set, with others."""
        return bool(self.process_set.included()) and self.process_set.size() != 1

    @property
    def scale(self) -> float:
        """The factor that turns the sums into averages, in the current world."""
        return self._predivide_factor / (self.process_set.size() or 1) if self.is_needed else 1.0

    def reduce(self, gradients: Sequence[Gradient]) -> None:
        """Reduce all gradients, in groups if requested. Does not wait."""
        if not self.is_needed:
            return
        if self._num_groups == 0:
            for each in gradients:
                self._reduce([each], f"{self._prefix}{each.index}")
            return
        for part in split_list(gradients, self._num_groups):
            for group in _by_type(part):
                self._reduce(group, f"{self._prefix}{group[0].index}:{group[-1].index}")

    def _reduce(self, gradients: Sequence[Gradient], name: str) -> None:
        compressed = []
        for each in gradients:
            try:
                check(each.array)
            except ValueError as error:
                raise ValueError(f"{called('allreduce', f'gradient {each.index}')}: {error}") from None
            compressed.append(self._compression.compress(each.array))
        hosts = [small if is_on_host(small) else host_copy(small) for small, _ in compressed]
        reduction = Reduction(Sum, 1.0 / self._predivide_factor, 1.0)
        grouped = self._num_groups > 0
        reduce_in_place(hosts, reduction, name, -gradients[0].order, self.process_set, grouped)
        for each, host, (_, context) in zip(gradients, hosts, compressed, strict=True):
            reduced = self._compression.decompress(host, context)
            if reduced is not each.array:
                write(reduced, each.array)


def _by_type(gradients: Sequence[Gradient]) -> list[list[Gradient]]:
    groups: dict[str, list[Gradient]] = {}
    for each in gradients:
        groups.setdefault(str(each.array.dtype), []).append(each)
    return list(groups.values())
