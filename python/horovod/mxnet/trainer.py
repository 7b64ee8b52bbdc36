"""DistributedTrainer: Gluon's Trainer that reduces gradients over all ranks."""

from __future__ import annotations

import warnings
from typing import Any

import mxnet as mx
from mxnet.gluon.parameter import ParameterDict

from horovod._generic.compression import Compressor, NoneCompressor
from horovod._generic.process_sets import ProcessSet, global_process_set
from horovod.mxnet.optimizer import DistributedOptimizer
from horovod.mxnet.reducing import Gradient, Reducer


class DistributedTrainer(mx.gluon.Trainer):  # type: ignore[misc]
    """A Trainer whose `step` averages the gradients over all ranks of the set.

    After `allreduce_grads` the gradients are sums (divided by `gradient_predivide_factor`): that they are averages in
    the end is part of the scale that `step` and `update` use. Give different prefixes to several trainers.
    """

    def __init__(
        self,
        params: Any,
        optimizer: Any,
        optimizer_params: dict[str, Any] | None = None,
        compression: type[Compressor] = NoneCompressor,
        gradient_predivide_factor: float = 1.0,
        prefix: str | None = None,
        num_groups: int = 0,
        process_set: ProcessSet = global_process_set,
    ) -> None:
        if isinstance(optimizer, DistributedOptimizer):
            warnings.warn(
                "DistributedTrainer does not need a DistributedOptimizer; the optimizer inside is used", stacklevel=2
            )
            optimizer.rescale_grad /= optimizer._scale
            optimizer = optimizer._optimizer
        self._reducer = Reducer(process_set, gradient_predivide_factor, num_groups, compression, prefix or "")
        # In an order that is the same on all ranks: the order of the names, or of the dict.
        if isinstance(params, (dict, ParameterDict)):
            params = list(params.values())
        elif isinstance(params, (list, tuple)):
            params = sorted(params, key=lambda parameter: getattr(parameter, "name", ""))
        super().__init__(params, optimizer, optimizer_params, kvstore=None)

    @property
    def _scale(self) -> float:
        return self._own_scale * self._reducer.scale

    @_scale.setter
    def _scale(self, value: float) -> None:  # set by Trainer and AMP
        self._own_scale = value

    def _allreduce_grads(self) -> None:
        wanted = ((i, param) for i, param in enumerate(self._params) if param.grad_req != "null")
        self._reducer.reduce([Gradient(i, i, param.list_grad()[0]) for i, param in wanted])
