"""DistributedOptimizer: an optimizer that steps with the gradients of all ranks.

Optimizers of TensorFlow 1 (`tf.compat.v1.train.Optimizer`) are wrapped here; those of Keras by
`horovod.tensorflow.keras`, to which all arguments are passed on.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from horovod._generic.reduce_ops import Adasum, Average
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.tensorflow.adasum_optimizer import DistributedAdasumOptimizer
from horovod.tensorflow.compression import Compression
from horovod.tensorflow.gradients import Groups, Wire, check_predivide_factor, checked_groups
from horovod.tensorflow.legacy_optimizer import DistributedLegacyOptimizer


def DistributedOptimizer(  # noqa: N802
    optimizer: Any,
    name: str | None = None,
    use_locking: bool = False,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    backward_passes_per_step: int = 1,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: Groups = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """Return an optimizer like `optimizer` that steps with the gradients of all ranks.

    `backward_passes_per_step`: that many steps are added up locally, then reduced and applied; the sum is divided by
    their number with `average_aggregated_gradients`.
    """
    check_predivide_factor(gradient_predivide_factor, op)
    if op == Adasum and average_aggregated_gradients:
        raise ValueError("average_aggregated_gradients does not work with op=hvd.Adasum, which combines steps")
    if backward_passes_per_step <= 0:
        raise ValueError(f"backward_passes_per_step must be positive, not {backward_passes_per_step}")
    groups = checked_groups(groups, num_groups)
    if isinstance(optimizer, tf.compat.v1.train.Optimizer):
        wire = Wire(
            op,
            compression,
            sparse_as_dense,
            gradient_predivide_factor,
            groups,
            process_set,
            scale_local_gradients,
            device_dense,
            device_sparse,
        )
        return _legacy_optimizer(
            optimizer, name, use_locking, wire, backward_passes_per_step, average_aggregated_gradients
        )
    if not (hasattr(optimizer, "apply_gradients") and hasattr(optimizer, "get_config")):
        raise ValueError(
            f"expected an optimizer of Keras or of tf.compat.v1.train, not {type(optimizer).__name__}; with your own "
            "way of applying gradients use hvd.DistributedGradientTape"
        )
    if op == Adasum:
        raise ValueError("op=hvd.Adasum does not work with optimizers of Keras; use hvd.Average or hvd.Sum")
    import horovod.tensorflow.keras as hvd_keras  # Keras is loaded already: the optimizer is one of its objects

    return hvd_keras.DistributedOptimizer(
        optimizer,
        name=name,
        device_dense=device_dense,
        device_sparse=device_sparse,
        compression=compression,
        sparse_as_dense=sparse_as_dense,
        gradient_predivide_factor=gradient_predivide_factor,
        op=op,
        backward_passes_per_step=backward_passes_per_step,
        average_aggregated_gradients=average_aggregated_gradients,
        groups=groups,
        process_set=process_set,
        scale_local_gradients=scale_local_gradients,
    )


def _legacy_optimizer(
    optimizer: Any, name: str | None, use_locking: bool, wire: Wire, passes: int, average_aggregated_gradients: bool
) -> Any:
    kind = type(optimizer).__name__
    if passes > 1 and tf.executing_eagerly():
        raise ValueError(
            "backward_passes_per_step > 1 needs a graph with an optimizer of tf.compat.v1.train; use one of Keras"
        )
    if wire.op == Adasum:
        if wire.process_set.process_set_id != global_process_set.process_set_id:
            raise NotImplementedError("op=hvd.Adasum works on the global process set only")
        return DistributedAdasumOptimizer(optimizer, name or f"DistributedDelta{kind}", use_locking, wire, passes)
    return DistributedLegacyOptimizer(
        optimizer, name or f"Distributed{kind}", use_locking, wire, passes, average_aggregated_gradients
    )
