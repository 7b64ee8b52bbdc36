"""Horovod for PyTorch: one script from one process to a cluster.

After `import horovod.torch as hvd` and `hvd.init()`, wrap the optimizer in `hvd.DistributedOptimizer` and broadcast the
start values with `hvd.broadcast_parameters(model.state_dict(), root_rank=0)`.
"""

import horovod.torch.oldest  # noqa: F401

# isort: split
from horovod.common.names import *  # noqa: F403
from horovod.torch import elastic, mpi_ops
from horovod.torch.compression import Compression
from horovod.torch.functions import (
    allgather_object,
    broadcast_object,
    broadcast_optimizer_state,
    broadcast_parameters,
)
from horovod.torch.mpi_ops import *  # noqa: F403
from horovod.torch.optimizer import DistributedOptimizer, ShardedOptimizer
from horovod.torch.sync_batch_norm import SyncBatchNorm

__all__ = [
    *mpi_ops.__all__,
    "Compression",
    "DistributedOptimizer",
    "ShardedOptimizer",
    "SyncBatchNorm",
    "allgather_object",
    "broadcast_object",
    "broadcast_optimizer_state",
    "broadcast_parameters",
    "elastic",
]
