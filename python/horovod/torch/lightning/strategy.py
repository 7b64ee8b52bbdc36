"""The implementation of `Trainer(strategy=HorovodStrategy())`.

Every optimizer is wrapped in hvd.DistributedOptimizer. Lightning runs a step as one call, optimizer.step(closure): the
closure computes the gradients and clips them. So gradients, whose reduction starts during backward, are waited for at
its end (`post_backward`), where clipping finds them reduced, and the step itself reduces nothing more. While Lightning
accumulates (`block_backward_sync`) gradients stay local.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import torch
from lightning_utilities.core.rank_zero import rank_zero_only

from horovod.torch import functions, mpi_ops
from horovod.torch.compression import Compression
from horovod.torch.lightning.optimizers import distribute, has_news, release

if TYPE_CHECKING:
    import pytorch_lightning as pl
    from lightning_fabric.plugins import CheckpointIO
    from pytorch_lightning.plugins import Precision
    from pytorch_lightning.strategies import ParallelStrategy
else:
    ParallelStrategy = object  # __init__.py chooses between Lightning's two classes

T = TypeVar("T")

_REDUCE_OPS = {
    "none": mpi_ops.Average,
    "mean": mpi_ops.Average,
    "avg": mpi_ops.Average,
    "sum": mpi_ops.Sum,
    "min": mpi_ops.Min,
    "max": mpi_ops.Max,
    "product": mpi_ops.Product,
}


class StrategyMethods(ParallelStrategy):
    """Trains with Horovod: one process per device, started by horovodrun.

    The options other than Lightning's are those of hvd.DistributedOptimizer.
    """

    strategy_name = "horovod"
    _environment_class: ClassVar[type[Any]]

    def __init__(
        self,
        accelerator: pl.accelerators.Accelerator | None = None,
        parallel_devices: list[torch.device] | None = None,
        checkpoint_io: CheckpointIO | None = None,
        precision_plugin: Precision | None = None,
        compression: Any = Compression.none,
        gradient_predivide_factor: float = 1.0,
        groups: int | None = None,
        sparse_as_dense: bool = False,
    ) -> None:
        if not mpi_ops.is_initialized():
            mpi_ops.init()
        super().__init__(
            accelerator=accelerator,
            parallel_devices=parallel_devices,
            cluster_environment=self._environment_class(),
            checkpoint_io=checkpoint_io,
            precision_plugin=precision_plugin,
        )
        self._optimizer_options: dict[str, Any] = {
            "compression": compression,
            "gradient_predivide_factor": gradient_predivide_factor,
            "groups": groups,
            "sparse_as_dense": sparse_as_dense,
        }
        self._is_accumulating = False
        self.set_world_ranks()

    # ---- where this process is

    def set_world_ranks(self) -> None:
        """Only rank 0 writes Lightning's messages that should appear once."""
        rank_zero_only.rank = mpi_ops.rank()  # type: ignore[attr-defined]

    @property
    def is_distributed(self) -> bool:
        """Queried by Lightning for external strategies, before it gives each rank its part of the data."""
        return True

    @property
    def root_device(self) -> torch.device:
        devices = self.parallel_devices or [torch.device("cpu")]
        return devices[mpi_ops.local_rank() % len(devices)]

    @property
    def distributed_sampler_kwargs(self) -> dict[str, Any]:
        return {"num_replicas": mpi_ops.size(), "rank": mpi_ops.rank()}

    # ---- the start

    def setup(self, trainer: pl.Trainer) -> None:
        """Place the model, make it the same on all ranks, and wrap the optimizers."""
        if self._layer_sync is not None:
            raise ValueError(
                "sync_batchnorm=True needs torch.distributed; with HorovodStrategy use hvd.SyncBatchNorm in the model"
            )
        self.set_world_ranks()  # the world may be another one than when this strategy was made
        super().setup(trainer)
        assert self.lightning_module is not None
        state = self.lightning_module.state_dict()
        functions.broadcast_parameters({name: each for name, each in state.items() if torch.is_tensor(each)}, 0)

    def setup_optimizers(self, trainer: pl.Trainer) -> None:
        """Make the user's optimizers, and distribute them."""
        super().setup_optimizers(trainer)
        assert self.lightning_module is not None
        schedulers = [config.scheduler for config in self.lr_scheduler_configs]
        self.optimizers = distribute(self.optimizers, schedulers, self.lightning_module, self._optimizer_options)

    def on_train_start(self) -> None:
        """Make the optimizers' states the same on all ranks: a checkpoint that is continued has been loaded now."""
        super().on_train_start()
        for optimizer in self.optimizers:
            if functions.broadcast_object(bool(optimizer.state), 0, "lightning.has_state"):
                functions.broadcast_optimizer_state(optimizer, 0, self.lightning_module)

    def model_to_device(self) -> None:
        assert self.model is not None
        self.model.to(self.root_device)

    # ---- a step

    def optimizer_step(
        self,
        optimizer: Any,
        closure: Callable[[], Any],
        model: Any = None,
        **kwargs: Any,
    ) -> Any:
        """Step with the gradients that `post_backward` has reduced, or will when the closure runs."""
        if has_news(optimizer):  # of a loss.backward() of the user's own
            optimizer.synchronize()
        with optimizer.skip_synchronize():
            return super().optimizer_step(optimizer, closure, model, **kwargs)

    def post_backward(self, closure_loss: torch.Tensor) -> None:
        """Wait until the gradients are reduced, so that they can be clipped and looked at.

        With manual optimization this concerns the optimizers whose gradients this backward has computed.
        """
        super().post_backward(closure_loss)
        if self._is_accumulating:
            return
        assert self.lightning_module is not None
        for optimizer in self.optimizers:
            if self.lightning_module.automatic_optimization or has_news(optimizer):
                optimizer.synchronize()  # type: ignore[attr-defined]  # of hvd.DistributedOptimizer

    @contextmanager
    def block_backward_sync(self) -> Generator[None, None, None]:
        """Inside, gradients are added up on this rank only."""
        with ExitStack() as stack:
            for optimizer in self.optimizers:
                stack.enter_context(optimizer.no_sync())  # type: ignore[attr-defined]
            self._is_accumulating = True
            try:
                yield
            finally:
                self._is_accumulating = False

    def teardown(self) -> None:
        """Release the parameters' gradients: the next `fit` wraps the optimizers again."""
        for optimizer in self.optimizers:
            release(optimizer)
        super().teardown()

    # ---- between the ranks

    def barrier(self, name: str | None = None) -> None:
        mpi_ops.barrier()

    def broadcast(self, obj: T, src: int = 0) -> T:
        result: T = functions.broadcast_object(obj, src, "lightning.broadcast")
        return result

    def reduce(self, tensor: Any, group: Any = None, reduce_op: Any = "mean") -> Any:
        """The mean, or another reduction, over all ranks; what is not a tensor stays."""
        if not torch.is_tensor(tensor):
            return tensor
        name = str(reduce_op).lower().rsplit(".", 1)[-1]  # of torch.distributed.ReduceOp too
        if name not in _REDUCE_OPS:
            raise ValueError(f"reduce_op must be one of {list(_REDUCE_OPS)}, not {reduce_op!r}")
        op = _REDUCE_OPS[name]
        is_mean_of_integers = op == mpi_ops.Average and not (tensor.is_floating_point() or tensor.is_complex())
        return mpi_ops.allreduce((tensor.float() if is_mean_of_integers else tensor).contiguous(), op=op)

    def all_gather(self, tensor: torch.Tensor, group: Any = None, sync_grads: bool = False) -> torch.Tensor:
        """The tensors of all ranks, stacked; gradients flow back if `sync_grads`."""
        with torch.set_grad_enabled(sync_grads and torch.is_grad_enabled()):
            return mpi_ops.allgather(tensor.contiguous().unsqueeze(0))
