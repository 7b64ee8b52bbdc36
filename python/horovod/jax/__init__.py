"""Horovod for JAX: one script from one process to a cluster.

After `import horovod.jax as hvd` and `hvd.init()`, take gradients with `hvd.value_and_grad`, or wrap the optimizer of
optax in `hvd.DistributedOptimizer`, and start with `params = hvd.broadcast_parameters(params, root_rank=0)`. All verbs
work on arrays and on pytrees, inside and outside of `jit`.

Parts that need optax or Flax are loaded on first use.
"""

import importlib
from typing import Any

from horovod.common import names
from horovod.common.names import *  # noqa: F403
from horovod.jax import functions, verbs
from horovod.jax.compression import Compression
from horovod.jax.ending import init, shutdown
from horovod.jax.errors import raising_horovod_errors
from horovod.jax.functions import *  # noqa: F403
from horovod.jax.gradients import grad, value_and_grad
from horovod.jax.sharded_state import gather_sharded_state, scatter_sharded_state
from horovod.jax.start_done import allreduce_done, allreduce_start
from horovod.jax.verbs import *  # noqa: F403
from horovod.jax.world import cross_rank, cross_size, local_rank, local_size, rank, size

# ---- loaded on first use: name -> module that has it
_LAZY = {
    "DistributedOptimizer": "horovod.jax.optimizer",
    "ShardedOptimizer": "horovod.jax.sharded",
    "SyncBatchNorm": "horovod.jax.sync_batch_norm",
}
_LAZY_MODULES = {"elastic"}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        value = getattr(importlib.import_module(_LAZY[name]), name)
    elif name in _LAZY_MODULES:
        value = importlib.import_module(f"horovod.jax.{name}")
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY, *_LAZY_MODULES})


__all__ = [
    *names.__all__,
    *functions.__all__,
    *verbs.__all__,
    "Compression",
    "allreduce_done",
    "allreduce_start",
    "cross_rank",
    "cross_size",
    "gather_sharded_state",
    "grad",
    "init",
    "local_rank",
    "local_size",
    "raising_horovod_errors",
    "rank",
    "scatter_sharded_state",
    "shutdown",
    "size",
    "value_and_grad",
]
