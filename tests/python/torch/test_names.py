"""The public names, and in which order their arguments come: scripts pass them by position."""

from __future__ import annotations

import importlib
import inspect

import pytest

import horovod.torch as hvd
from horovod.torch import mpi_ops

OTHERS = [
    "init",
    "shutdown",
    "is_initialized",
    "start_timeline",
    "stop_timeline",
    "rank",
    "size",
    "local_rank",
    "local_size",
    "cross_rank",
    "cross_size",
    "mpi_threads_supported",
    "mpi_enabled",
    "mpi_built",
    "gloo_enabled",
    "gloo_built",
    "nccl_built",
    "ddl_built",
    "ccl_built",
    "cuda_built",
    "rocm_built",
    "ProcessSet",
    "global_process_set",
    "add_process_set",
    "remove_process_set",
    "Average",
    "Sum",
    "Adasum",
    "Min",
    "Max",
    "Product",
    "HorovodInternalError",
    "Compression",
    "elastic",
]
REDUCTION = "op=None, prescale_factor=1.0, postscale_factor=1.0, process_set=GPS"
AFTER_NAME = "op=Average, process_set=GPS, prescale_factor=1.0, postscale_factor=1.0"
SIGNATURES = {
    "allreduce": f"(tensor, average=None, name=None, compression=NC, {REDUCTION})",
    "allreduce_async": f"(tensor, average=None, name=None, {REDUCTION})",
    "allreduce_": f"(tensor, average=None, name=None, {REDUCTION})",
    "allreduce_async_": f"(tensor, average=None, name=None, {REDUCTION})",
    "grouped_allreduce": f"(tensors, average=None, name=None, compression=NC, {REDUCTION})",
    "grouped_allreduce_async": f"(tensors, average=None, name=None, {REDUCTION})",
    "grouped_allreduce_": f"(tensors, average=None, name=None, {REDUCTION})",
    "grouped_allreduce_async_": f"(tensors, average=None, name=None, {REDUCTION})",
    "sparse_allreduce_async": "(tensor, name, op, process_set=GPS)",
    "allgather": "(tensor, name=None, process_set=GPS)",
    "allgather_async": "(tensor, name=None, process_set=GPS)",
    "grouped_allgather": "(tensors, name=None, process_set=GPS)",
    "grouped_allgather_async": "(tensors, name=None, process_set=GPS)",
    "broadcast": "(tensor, root_rank, name=None, process_set=GPS)",
    "broadcast_async": "(tensor, root_rank, name=None, process_set=GPS)",
    "broadcast_": "(tensor, root_rank, name=None, process_set=GPS)",
    "broadcast_async_": "(tensor, root_rank, name=None, process_set=GPS)",
    "alltoall": "(tensor, splits=None, name=None, process_set=GPS)",
    "alltoall_async": "(tensor, splits=None, name=None, process_set=GPS)",
    "reducescatter": f"(tensor, name=None, compression=NC, {AFTER_NAME})",
    "reducescatter_async": f"(tensor, name=None, {AFTER_NAME})",
    "grouped_reducescatter": f"(tensors, name=None, compression=NC, {AFTER_NAME})",
    "grouped_reducescatter_async": f"(tensors, name=None, {AFTER_NAME})",
    "join": "(device=-1)",
    "barrier": "(process_set=GPS)",
    "poll": "(handle)",
    "synchronize": "(handle)",
    "broadcast_parameters": "(params, root_rank)",
    "broadcast_optimizer_state": "(optimizer, root_rank, model=None)",
    "broadcast_object": "(obj, root_rank=0, name=None, process_set=GPS)",
    "allgather_object": "(obj, name=None)",
    "DistributedOptimizer": "(optimizer, named_parameters=None, compression=NC, backward_passes_per_step=1, "
    "op=Average, gradient_predivide_factor=1.0, num_groups=0, groups=None, sparse_as_dense=False, process_set=GPS)",
    "SyncBatchNorm": "(num_features, eps=1e-05, momentum=0.1, affine=True, track_running_stats=True)",
}
DEFAULTS = {id(hvd.global_process_set): "GPS", id(hvd.Compression.none): "NC"}


def signature_of(function: object) -> str:
    def written(parameter: inspect.Parameter) -> str:
        default = parameter.default
        if default is inspect.Parameter.empty:
            return parameter.name
        if parameter.name == "op" and default == hvd.Average and default is not None:
            return "op=Average"
        return f"{parameter.name}={DEFAULTS.get(id(default), repr(default))}"

    assert callable(function)
    return f"({', '.join(map(written, inspect.signature(function).parameters.values()))})"


@pytest.mark.parametrize("name", SIGNATURES)
def test_the_arguments_and_their_order(name: str) -> None:
    assert signature_of(getattr(hvd, name)) == SIGNATURES[name]


def test_every_name_is_exported() -> None:
    assert set(OTHERS) | set(SIGNATURES) <= set(hvd.__all__)
    assert all(hasattr(hvd, name) for name in hvd.__all__)
    assert hvd.is_homogeneous()  # upstream has it in mpi_ops alone
    assert mpi_ops.is_homogeneous()


@pytest.mark.parametrize(
    ("module", "names"),
    [
        ("mpi_ops", [*list(SIGNATURES)[:27], "rank", "size", "Sum", "HorovodInternalError"]),
        ("functions", ["broadcast_parameters", "broadcast_optimizer_state", "broadcast_object", "allgather_object"]),
        ("compression", ["Compression", "Compressor", "NoneCompressor", "FP16Compressor"]),
        ("optimizer", ["DistributedOptimizer"]),
        ("sync_batch_norm", ["SyncBatchNorm"]),
        ("elastic", ["TorchState", "ElasticSampler", "run"]),
        ("elastic.state", ["TorchState", "StateHandler", "get_handler_registry", "set_handler_registry"]),
        ("elastic.sampler", ["ElasticSampler"]),
    ],
)
def test_what_scripts_import_from_submodules(module: str, names: list[str]) -> None:
    imported = importlib.import_module(f"horovod.torch.{module}")
    assert all(hasattr(imported, name) for name in names)


def test_the_numbers_of_the_reduce_ops() -> None:
    assert [hvd.Average, hvd.Sum, hvd.Adasum, hvd.Min, hvd.Max, hvd.Product] == list(range(6))
