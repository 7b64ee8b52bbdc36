"""Horovod for TensorFlow: one script from one process to a cluster.

After `import horovod.tensorflow as hvd` and `hvd.init()`, wrap the tape in `hvd.DistributedGradientTape` (or the
optimizer in `hvd.DistributedOptimizer`) and broadcast the start values with
`hvd.broadcast_variables(model.variables, root_rank=0)` after the first step.

Parts that need Keras are loaded on first use: Keras takes longer to import than everything else here.
"""

import importlib
from typing import Any

from horovod.common.basics import after_end
from horovod.common.names import *  # noqa: F403
from horovod.common.util import gpu_available, split_list

# ---- graph operations
from horovod.tensorflow import mpi_ops, native_ops, op_gradients, util
from horovod.tensorflow.collectives import allreduce, grouped_allreduce, grouped_reducescatter, reducescatter
from horovod.tensorflow.compression import Compression
from horovod.tensorflow.functions import (
    allgather_object,
    broadcast_global_variables,
    broadcast_object,
    broadcast_object_fn,
    broadcast_variables,
)
from horovod.tensorflow.mpi_ops import *  # noqa: F403
from horovod.tensorflow.mpi_ops import _allreduce
from horovod.tensorflow.threads_at_exit import let_threads_return
from horovod.tensorflow.util import (
    _executing_eagerly,
    check_num_rank_power_of_2,
    handle_average_backwards_compatibility,
    refs_to_vars,
    vars_to_refs,
)

after_end(let_threads_return)

# ---- loaded on first use: name -> module that has it
_LAZY = {
    # ---- graph operations
    "SyncBatchNormalization": "horovod.tensorflow.sync_batch_norm",
    "BroadcastGlobalVariablesHook": "horovod.tensorflow.functions",
    # ---- optimizer, tapes, aggregation of gradients
    "DistributedOptimizer": "horovod.tensorflow.optimizer",
    "_LegacyOptimizer": "horovod.tensorflow.legacy_optimizer",
    "DistributedGradientTape": "horovod.tensorflow.tapes",
    "PartialDistributedGradientTape": "horovod.tensorflow.tapes",
    "LocalGradientAggregationHelper": "horovod.tensorflow.gradient_aggregation",
    # ---- Keras and elastic training
}
_LAZY_MODULES = {
    # ---- optimizer, tapes, aggregation of gradients
    "data",
    # ---- Keras and elastic training
    "elastic",
    "keras",
}

native_ops.module()  # graphs that are read from files need the operations too
op_gradients.register()


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        value = getattr(importlib.import_module(_LAZY[name]), name)
    elif name in _LAZY_MODULES:
        value = importlib.import_module(f"horovod.tensorflow.{name}")
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY, *_LAZY_MODULES})


__all__ = [
    *mpi_ops.__all__,
    "Compression",
    "_allreduce",
    "_executing_eagerly",
    "allgather_object",
    "allreduce",
    "broadcast_global_variables",
    "broadcast_object",
    "broadcast_object_fn",
    "broadcast_variables",
    "check_num_rank_power_of_2",
    "gpu_available",
    "grouped_allreduce",
    "grouped_reducescatter",
    "handle_average_backwards_compatibility",
    "mpi_ops",
    "reducescatter",
    "refs_to_vars",
    "split_list",
    "util",
    "vars_to_refs",
]
