"""Local gradient aggregation for eager execution and `tf.function`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.tensorflow.gradient_aggregation import Aggregation, Reduce


class LocalGradientAggregationHelperEager(Aggregation):
    """Aggregation in eager execution and in functions. Its variables are made outside of the function being traced."""

    def __init__(
        self,
        backward_passes_per_step: int,
        allreduce_func: Reduce,
        sparse_as_dense: bool,
        average_aggregated_gradients: bool,
        process_set: ProcessSet = global_process_set,
        scale_local_gradients: bool = True,
    ) -> None:
        super().__init__(
            backward_passes_per_step,
            allreduce_func,
            sparse_as_dense,
            average_aggregated_gradients,
            process_set,
            scale_local_gradients,
        )

    def _variable(self, initial: Callable[[], Any], name: str) -> Any:
        with tf.init_scope():
            return tf.Variable(initial(), trainable=False, name=name)
