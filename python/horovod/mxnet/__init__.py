"""Horovod for MXNet: one script from one process to a cluster.

After `import horovod.mxnet as hvd` and `hvd.init()`, broadcast the initial values with
`hvd.broadcast_parameters(net.collect_params(), root_rank=0)` and train with `hvd.DistributedTrainer` (Gluon) or
`hvd.DistributedOptimizer` (Module).
"""

import importlib
from typing import Any

from horovod.common.basics import before_end
from horovod.mxnet import mpi_ops, native
from horovod.mxnet.at_exit import finish_pushed
from horovod.mxnet.compression import Compression
from horovod.mxnet.functions import allgather_object, broadcast_object, broadcast_parameters
from horovod.mxnet.mpi_ops import *  # noqa: F403
from horovod.mxnet.optimizer import DistributedOptimizer
from horovod.mxnet.trainer import DistributedTrainer

native.adapter()  # ImportError now, not with the first operation
before_end(finish_pushed)


def __getattr__(name: str) -> Any:
    if name != "elastic":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module("horovod.mxnet.elastic")


__all__ = [
    *mpi_ops.__all__,
    "Compression",
    "DistributedOptimizer",
    "DistributedTrainer",
    "allgather_object",
    "broadcast_object",
    "broadcast_parameters",
]
