"""Horovod for tf.keras: one script from one process to a cluster.

After `import horovod.tensorflow.keras as hvd` and `hvd.init()`, wrap the optimizer in `hvd.DistributedOptimizer` before
`model.compile`, and pass `hvd.callbacks.BroadcastGlobalVariablesCallback(0)` to `model.fit`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from horovod._generic.reduce_ops import Average
from horovod._keras import loading
from horovod._keras.on_tensorflow import allgather, allreduce, broadcast, reducescatter
from horovod._keras.optimizer import distribute
from horovod._keras.settings import Groups, Settings, chosen_groups
from horovod.common import names
from horovod.common.names import *  # noqa: F403
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.tensorflow.compression import Compression
from horovod.tensorflow.functions import broadcast_global_variables as _broadcast_global_variables
from horovod.tensorflow.keras import callbacks, elastic


def DistributedOptimizer(  # noqa: N802
    optimizer: Any,
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: int = Average,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: Groups = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """Return an optimizer like the given one that averages gradients over all ranks before it applies them.

    The state of the given optimizer is not copied: wrap it before training. With `backward_passes_per_step` the
    gradients of several batches are summed up (or averaged) before they are reduced and applied.
    """
    settings = Settings(
        compression,
        name,
        device_dense,
        device_sparse,
        sparse_as_dense,
        gradient_predivide_factor,
        op,
        backward_passes_per_step,
        average_aggregated_gradients,
        chosen_groups(groups, num_groups),
        process_set,
        scale_local_gradients,
    )
    return distribute(optimizer, settings)


def broadcast_global_variables(root_rank: int) -> Any:
    """Run the broadcast of all variables of a graph of TensorFlow 1 in the session of Keras."""
    operation = _broadcast_global_variables(root_rank)
    return tf.compat.v1.keras.backend.get_session().run(operation)


def load_model(
    filepath: Any,
    custom_optimizers: Iterable[type] | None = None,
    custom_objects: dict[str, Any] | None = None,
    compression: Any = Compression.none,
    legacy_opts: bool = False,
) -> Any:
    """Load a model so that its optimizer is distributed again, with its state; compiled or not, as it was saved.

    `custom_optimizers` are classes that Keras does not know. `legacy_opts` is not needed: legacy optimizers are found.
    """
    return loading.load_model(tf.keras, filepath, custom_optimizers, custom_objects, Settings(compression))


__all__ = [
    *names.__all__,
    "Compression",
    "DistributedOptimizer",
    "allgather",
    "allreduce",
    "broadcast",
    "broadcast_global_variables",
    "callbacks",
    "elastic",
    "load_model",
    "reducescatter",
]
