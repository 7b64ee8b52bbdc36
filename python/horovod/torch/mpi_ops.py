"""Collective operations on tensors, under the names and with the argument order of Horovod's scripts."""

from __future__ import annotations

from collections.abc import Callable

import torch

from horovod.common import names
from horovod.common.names import *  # noqa: F403
from horovod.common.names import _basics as _basics  # scripts know it by this name
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.torch import sparse
from horovod.torch.gradients import TorchCollectives
from horovod.torch.graph_break import outside_graphs
from horovod.torch.tensors import TorchTensors

_collectives = TorchCollectives(TorchTensors())
allreduce = outside_graphs(_collectives.allreduce)
allreduce_async = outside_graphs(_collectives.allreduce_async)
allreduce_ = outside_graphs(_collectives.allreduce_)
allreduce_async_ = outside_graphs(_collectives.allreduce_async_)
grouped_allreduce = outside_graphs(_collectives.grouped_allreduce)
grouped_allreduce_async = outside_graphs(_collectives.grouped_allreduce_async)
grouped_allreduce_ = outside_graphs(_collectives.grouped_allreduce_)
grouped_allreduce_async_ = outside_graphs(_collectives.grouped_allreduce_async_)
allgather = outside_graphs(_collectives.allgather)
allgather_async = outside_graphs(_collectives.allgather_async)
grouped_allgather = outside_graphs(_collectives.grouped_allgather)
grouped_allgather_async = outside_graphs(_collectives.grouped_allgather_async)
broadcast = outside_graphs(_collectives.broadcast)
broadcast_async = outside_graphs(_collectives.broadcast_async)
broadcast_ = outside_graphs(_collectives.broadcast_)
broadcast_async_ = outside_graphs(_collectives.broadcast_async_)
alltoall = outside_graphs(_collectives.alltoall)
alltoall_async = outside_graphs(_collectives.alltoall_async)
reducescatter = outside_graphs(_collectives.reducescatter)
reducescatter_async = outside_graphs(_collectives.reducescatter_async)
grouped_reducescatter = outside_graphs(_collectives.grouped_reducescatter)
grouped_reducescatter_async = outside_graphs(_collectives.grouped_reducescatter_async)
reduce = outside_graphs(_collectives.reduce)
reduce_async = outside_graphs(_collectives.reduce_async)
gather = outside_graphs(_collectives.gather)
gather_async = outside_graphs(_collectives.gather_async)
scatter = outside_graphs(_collectives.scatter)
scatter_async = outside_graphs(_collectives.scatter_async)
send = outside_graphs(_collectives.send)
send_async = outside_graphs(_collectives.send_async)
recv = outside_graphs(_collectives.recv)
recv_async = outside_graphs(_collectives.recv_async)
join = outside_graphs(_collectives.join)
barrier = outside_graphs(_collectives.barrier)
poll = outside_graphs(_collectives.poll)
synchronize = outside_graphs(_collectives.synchronize)


def sparse_allreduce_async(
    tensor: torch.Tensor, name: str | None, op: int, process_set: ProcessSet = global_process_set
) -> Callable[[], torch.Tensor]:
    """Start to reduce a sparse tensor; call what is returned to wait for the result.

    That is sparse and not coalesced: it holds the elements of all ranks, divided by their number if op is Average.
    """
    return sparse.sparse_allreduce_async(_collectives, tensor, name, op, process_set)


__all__ = [
    *names.__all__,
    "allgather",
    "allgather_async",
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
    "sparse_allreduce_async",
    "synchronize",
]
