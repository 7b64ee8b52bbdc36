"""Horovod for NumPy: collective operations on arrays.

After `import horovod.numpy as hvd` and `hvd.init()`, `hvd.allreduce(gradient)` is the mean over all ranks.
"""

from horovod._generic.collectives import Collectives
from horovod._generic.objects import allgather_object, broadcast_object
from horovod.common import names
from horovod.common.names import *  # noqa: F403
from horovod.numpy.compression import Compression
from horovod.numpy.tensors import NumpyTensors

_collectives = Collectives(NumpyTensors())
allreduce = _collectives.allreduce
allreduce_async = _collectives.allreduce_async
allreduce_ = _collectives.allreduce_
allreduce_async_ = _collectives.allreduce_async_
grouped_allreduce = _collectives.grouped_allreduce
grouped_allreduce_async = _collectives.grouped_allreduce_async
grouped_allreduce_ = _collectives.grouped_allreduce_
grouped_allreduce_async_ = _collectives.grouped_allreduce_async_
allgather = _collectives.allgather
allgather_async = _collectives.allgather_async
grouped_allgather = _collectives.grouped_allgather
grouped_allgather_async = _collectives.grouped_allgather_async
broadcast = _collectives.broadcast
broadcast_async = _collectives.broadcast_async
broadcast_ = _collectives.broadcast_
broadcast_async_ = _collectives.broadcast_async_
broadcast_parameters = _collectives.broadcast_parameters
alltoall = _collectives.alltoall
alltoall_async = _collectives.alltoall_async
reducescatter = _collectives.reducescatter
reducescatter_async = _collectives.reducescatter_async
grouped_reducescatter = _collectives.grouped_reducescatter
grouped_reducescatter_async = _collectives.grouped_reducescatter_async
reduce = _collectives.reduce
reduce_async = _collectives.reduce_async
gather = _collectives.gather
gather_async = _collectives.gather_async
scatter = _collectives.scatter
scatter_async = _collectives.scatter_async
send = _collectives.send
send_async = _collectives.send_async
recv = _collectives.recv
recv_async = _collectives.recv_async
join = _collectives.join
barrier = _collectives.barrier
poll = _collectives.poll
synchronize = _collectives.synchronize

__all__ = [
    *names.__all__,
    "Compression",
    "allgather",
    "allgather_async",
    "allgather_object",
    "allreduce",
    "allreduce_",
    "allreduce_async",
    "allreduce_async_",
    "alltoall",
    "alltoall_async",
    "barrier",
    "broadcast",
    "broadcast_",
    "broadcast_async",
    "broadcast_async_",
    "broadcast_object",
    "broadcast_parameters",
    "gather",
    "gather_async",
    "grouped_allgather",
    "grouped_allgather_async",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_allreduce_async",
    "grouped_allreduce_async_",
    "grouped_reducescatter",
    "grouped_reducescatter_async",
    "join",
    "poll",
    "recv",
    "recv_async",
    "reduce",
    "reduce_async",
    "reducescatter",
    "reducescatter_async",
    "scatter",
    "scatter_async",
    "send",
    "send_async",
    "synchronize",
]
