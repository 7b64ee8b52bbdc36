"""Collective operations on tensors, under the names and with the argument order of Horovod's scripts."""

from __future__ import annotations

from collections.abc import Callable

import torch

from horovod._generic.reduce_ops import Adasum, Average, Max, Min, Product, Sum
from horovod.common.basics import HorovodBasics
from horovod.common.exceptions import HorovodInternalError
from horovod.common.process_sets import ProcessSet, add_process_set, global_process_set, remove_process_set
from horovod.torch import sparse
from horovod.torch.gradients import TorchCollectives
from horovod.torch.graph_break import outside_graphs
from horovod.torch.tensors import TorchTensors

_basics = HorovodBasics()
init = _basics.init
shutdown = _basics.shutdown
is_initialized = _basics.is_initialized
start_timeline = _basics.start_timeline
stop_timeline = _basics.stop_timeline
rank = _basics.rank
size = _basics.size
local_rank = _basics.local_rank
local_size = _basics.local_size
cross_rank = _basics.cross_rank
cross_size = _basics.cross_size
is_homogeneous = _basics.is_homogeneous
mpi_threads_supported = _basics.mpi_threads_supported
mpi_enabled = _basics.mpi_enabled
mpi_built = _basics.mpi_built
gloo_enabled = _basics.gloo_enabled
gloo_built = _basics.gloo_built
nccl_built = _basics.nccl_built
ddl_built = _basics.ddl_built
ccl_built = _basics.ccl_built
cuda_built = _basics.cuda_built
rocm_built = _basics.rocm_built

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
    "Adasum",
    "Average",
    "HorovodInternalError",
    "Max",
    "Min",
    "ProcessSet",
    "Product",
    "Sum",
    "add_process_set",
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
    "ccl_built",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
    "grouped_allgather",
    "grouped_allgather_async",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_allreduce_async",
    "grouped_allreduce_async_",
    "grouped_reducescatter",
    "grouped_reducescatter_async",
    "init",
    "is_homogeneous",
    "is_initialized",
    "join",
    "local_rank",
    "local_size",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "poll",
    "rank",
    "reducescatter",
    "reducescatter_async",
    "remove_process_set",
    "rocm_built",
    "shutdown",
    "size",
    "sparse_allreduce_async",
    "start_timeline",
    "stop_timeline",
    "synchronize",
]
