"""Optimizers of TensorFlow 1 (`tf.compat.v1.train.Optimizer`), wrapped so that they step with the gradients of all
ranks. Made by `DistributedOptimizer`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from horovod.common.basics import HorovodBasics
from horovod.tensorflow.gradient_aggregation import LocalGradientAggregationHelper
from horovod.tensorflow.gradients import Wire
from horovod.tensorflow.variable_set import VariableSet

_LegacyOptimizer = tf.compat.v1.train.Optimizer  # libraries ask horovod.tensorflow for it by this name


class LegacyWrapper(tf.compat.v1.train.Optimizer):  # type: ignore[misc]
    """Has an optimizer, and passes on the questions about its slots."""

    def __init__(self, optimizer: Any, name: str, use_locking: bool, wire: Wire) -> None:
        super().__init__(name=name, use_locking=use_locking)
        self._optimizer = optimizer
        self._wire = wire
        self._local_vars = VariableSet()

    def register_local_var(self, var: Any) -> None:
        """From now on this variable is left to the rank."""
        self._local_vars.add(var)

    def get_slot(self, *args: Any, **kwargs: Any) -> Any:
        """As of the wrapped optimizer."""
        return self._optimizer.get_slot(*args, **kwargs)

    def get_slot_names(self, *args: Any, **kwargs: Any) -> Any:
        """As of the wrapped optimizer."""
        return self._optimizer.get_slot_names(*args, **kwargs)

    def variables(self, *args: Any, **kwargs: Any) -> Any:
        """As of the wrapped optimizer."""
        return self._optimizer.variables(*args, **kwargs)


class DistributedLegacyOptimizer(LegacyWrapper):
    """Wraps an optimizer of TensorFlow 1: gradients are reduced where they are computed."""

    def __init__(
        self,
        optimizer: Any,
        name: str,
        use_locking: bool,
        wire: Wire,
        backward_passes_per_step: int,
        average_aggregated_gradients: bool,
    ) -> None:
        super().__init__(optimizer, name, use_locking, wire)
        self._agg_helper: LocalGradientAggregationHelper | None = None
        if backward_passes_per_step > 1:
            self._agg_helper = LocalGradientAggregationHelper(
                backward_passes_per_step,
                self._allreduce,
                wire.sparse_as_dense,
                average_aggregated_gradients,
                HorovodBasics().rank(),
                LocalGradientAggregationHelper._OPTIMIZER_TYPE_LEGACY,
                wire.process_set,
                wire.scale_local_gradients,
                name,
            )

    def register_local_var(self, var: Any) -> None:
        """From now on the gradient of this variable is not reduced."""
        super().register_local_var(var)
        if self._agg_helper is not None:
            self._agg_helper.register_local_var(var)

    def compute_gradients(self, *args: Any, **kwargs: Any) -> list[tuple[Any, Any]]:
        """Compute the gradients as the wrapped optimizer does, and reduce them over all ranks."""
        grads_and_vars = self._optimizer.compute_gradients(*args, **kwargs)
        if not grads_and_vars:
            return []
        grads, variables = map(list, zip(*grads_and_vars, strict=True))
        if self._agg_helper is not None:
            reduced = self._agg_helper.compute_gradients(grads, variables)
        else:
            reduced = self._allreduce(grads, variables)
        return list(zip(reduced, variables, strict=True))

    def apply_gradients(
        self, grads_and_vars: Iterable[tuple[Any, Any]], global_step: Any = None, name: str | None = None
    ) -> Any:
        """Apply the gradients; while some are aggregated, only `global_step` advances."""
        pairs = list(grads_and_vars)

        def apply() -> Any:
            return self._optimizer.apply_gradients(pairs, global_step=global_step, name=name)

        if self._agg_helper is None:
            return apply()
        return self._agg_helper.apply_gradients(apply, self, pairs, global_step=global_step, name=name)

    def _allreduce(self, grads: list[Any], variables: list[Any]) -> list[Any]:
        return self._wire.reduce(grads, variables, self._local_vars, self._name)
