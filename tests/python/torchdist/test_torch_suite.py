"""PyTorch's tests of torch.distributed with the backend "hvd": see torch_suite.py."""

from __future__ import annotations

import os
import shutil
import tempfile
import unittest
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
import torch.distributed as dist
import torch_suite as suite

import horovod.numpy as hvd
import horovod.torch.distributed

FULL = os.environ.get("TEST_FULL") == "1"
# What make test runs: a few of each kind.
SOME = [
    "test_all_gather",
    "test_all_gather_coalesced_simple",
    "test_all_gather_into_cat_tensor",
    "test_all_reduce_sum",
    "test_all_reduce_coalesced_sum",
    "test_all_reduce_product",
    "test_all_reduce_full_group_max",
    "test_all_reduce_sum_async",
    "test_all_to_all",
    "test_all_to_all_single_unequal_split",
    "test_average_parameters",
    "test_barrier",
    "test_barrier_group",
    "test_broadcast",
    "test_broadcast_group",
    "test_broadcast_object_list",
    "test_gather",
    "test_gather_object",
    "test_irecv",
    "test_isend",
    "test_monitored_barrier_gloo",
    "test_monitored_barrier_allreduce_hang",
    "test_reduce_full_group_min",
    "test_reduce_sum",
    "test_reduce_scatter_tensor",
    "test_scatter",
    "test_scatter_object_list",
    "test_send_recv",
    "test_send_recv_any_source",
    "test_send_recv_with_tag",
    "test_sparse_all_reduce_sum",
    "test_ddp_join_model_equivalence",
    "test_static_graph_multi_forward",
    "test_DistributedDataParallelCPU",
    "test_DistributedDataParallelCPU_grad_is_view",
    "test_ddp_ignore_params_arg",
    "test_undefined_grad_parity_unused_parameters",
    "test_ddp_logging_data_cpu",
    "test_new_subgroups",
    "test_stateless_api_with_ddp",
    "test_post_localSGD_optimizer_parity",
    "test_accumulate_gradients_no_sync",
]


@pytest.fixture(scope="module")
def cases() -> Iterator[type[Any]]:
    folder = hvd.broadcast_object(tempfile.mkdtemp() if hvd.rank() == 0 else None)
    module = suite.load(folder)
    if hvd.rank() == 0:
        module.initialize_temp_directories()
    hvd.barrier()
    yield suite.test_case(module)
    hvd.barrier()
    if hvd.rank() == 0:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.parametrize("name", [name for name in suite.names() if FULL or name in SOME])
def test_of_pytorch(cases: type[Any], name: str) -> None:
    for variable in ("MASTER_ADDR", "MASTER_PORT", "RANK"):
        os.environ.pop(variable, None)
    assert horovod.torch.distributed
    case = cases(name)
    case.rank = hvd.rank()
    module = __import__("sys").modules[cases.__mro__[1].__module__]
    seconds = module.CUSTOM_PG_TIMEOUT.get(name, module.default_pg_timeout)
    dist.init_process_group("hvd", timeout=timedelta(seconds=seconds))
    try:
        module.Barrier.init()
        case.setUpClass()
        getattr(case, name)()
    except unittest.SkipTest as reason:
        pytest.skip(str(reason))
    except SystemExit as end:  # how the suite skips
        pytest.skip(f"exit code {end.code}")
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
