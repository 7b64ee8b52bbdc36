"""Horovod for Keras 2 and 3: one script from one process to a cluster.

After `import horovod.keras as hvd` and `hvd.init()`, wrap the optimizer in `hvd.DistributedOptimizer` before
`model.compile`, and pass `hvd.callbacks.BroadcastGlobalVariablesCallback(0)` to `model.fit`. With Keras 3 the backend
may be TensorFlow, PyTorch or JAX.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import keras

from horovod._generic.reduce_ops import Average
from horovod._keras import loading
from horovod._keras.backend import module_for
from horovod._keras.optimizer import distribute
from horovod._keras.settings import Groups, Settings, chosen_groups
from horovod._keras.variables import backend_name
from horovod.common import names
from horovod.common.names import *  # noqa: F403
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.keras import callbacks, elastic

_backend = module_for(keras)
Compression = _backend.Compression
allgather = _backend.allgather
broadcast = _backend.broadcast
reducescatter = _backend.reducescatter


def allreduce(
    value: Any,
    name: str | None = None,
    average: bool | None = True,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    op: int | None = None,
    compression: Any = Compression.none,
) -> Any:
    """Return the average of a value over all ranks. To pass `op`, pass `average=None` with it."""
    if average is True and op is None:
        average, op = None, Average
    return _backend.allreduce(value, name, average, prescale_factor, postscale_factor, op, compression)


def DistributedOptimizer(  # noqa: N802
    optimizer: Any,
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: int = Average,
    num_groups: int = 0,
    groups: Groups = None,
) -> Any:
    """Return an optimizer like the given one that averages gradients over all ranks before it applies them.

    The state of the given optimizer is not copied: wrap it before training.
    """
    settings = Settings(
        compression,
        name,
        device_dense,
        device_sparse,
        sparse_as_dense,
        gradient_predivide_factor,
        op,
        groups=chosen_groups(groups, num_groups),
    )
    return distribute(optimizer, settings)


def PartialDistributedOptimizer(  # noqa: N802
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
    groups: Groups = None,
    process_set: ProcessSet = global_process_set,
    local_layers: Any = None,
    scale_local_gradients: bool = True,
) -> Any:
    """Return a DistributedOptimizer that leaves the variables of `local_layers` to each rank.

    Their gradients are divided by the number of ranks, as averages are, unless `scale_local_gradients` is False.
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
        groups,
        process_set,
        scale_local_gradients,
    )
    return distribute(optimizer, settings, _as_layers(local_layers))


def _as_layers(given: Any) -> list[Any]:
    if given is None:
        return []
    many = list(given) if isinstance(given, (list, tuple, set, frozenset)) else [given]
    if not all(hasattr(each, "trainable_weights") for each in many):
        raise ValueError("local_layers must be a layer of Keras or a collection of layers")
    return many


def broadcast_global_variables(root_rank: int) -> Any:
    """Run the broadcast of all variables of a graph of TensorFlow 1 in the session of Keras 2."""
    if backend_name(keras) != "tensorflow":
        raise RuntimeError("there are no global variables: pass callbacks.BroadcastGlobalVariablesCallback to fit")
    from horovod.tensorflow.keras import broadcast_global_variables as broadcast_graph

    return broadcast_graph(root_rank)


def load_model(
    filepath: Any,
    custom_optimizers: Iterable[type] | None = None,
    custom_objects: dict[str, Any] | None = None,
    compression: Any = Compression.none,
    legacy_opts: bool = False,
) -> Any:
    """Load a model so that its optimizer is distributed again, with its state; compiled or not, as it was saved.

    `custom_optimizers` are classes not registered with Keras. `legacy_opts` is ignored: they are recognised.
    """
    return loading.load_model(keras, filepath, custom_optimizers, custom_objects, Settings(compression))


__all__ = [
    *names.__all__,
    "Compression",
    "DistributedOptimizer",
    "PartialDistributedOptimizer",
    "allgather",
    "allreduce",
    "broadcast",
    "broadcast_global_variables",
    "callbacks",
    "elastic",
    "load_model",
    "reducescatter",
]
