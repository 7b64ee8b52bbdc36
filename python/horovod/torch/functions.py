"""Functions for the start of a script that give all ranks the same parameters and optimizer state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor, nn, optim

from horovod._generic.handles import handles
from horovod._generic.objects import allgather_object, broadcast_object
from horovod.torch.mpi_ops import broadcast_async_
from horovod.torch.optimizer import ShardedOptimizer
from horovod.torch.optimizer_state import Named, broadcast_state


def broadcast_parameters(params: Mapping[str, Tensor] | Sequence[Tensor | Named], root_rank: int) -> None:
    """Replace all tensors of a dict, or of a list of tensors or `(name, tensor)` pairs, by those of `root_rank`.

    Usually `broadcast_parameters(model.state_dict(), root_rank=0)`.
    """
    named: list[Named]
    if isinstance(params, Mapping):
        named = [(name, params[name]) for name in sorted(params)]
    elif isinstance(params, list):
        named = [each if isinstance(each, tuple) else (None, each) for each in params]
    else:
        raise ValueError(
            f"params must be a dict such as model.state_dict(), or a list of tensors or of (name, tensor) pairs, not "
            f"{type(params).__name__}"
        )
    _broadcast_tensors(named, root_rank)


def _broadcast_tensors(named: Sequence[Named], root_rank: int) -> None:
    """Replace the tensors by those of the root: all at once, then wait."""
    started = []
    for name, tensor in named:
        # Elements in another order than that of the rows (channels_last) take a detour.
        direct = not isinstance(tensor, Tensor) or tensor.is_contiguous()
        sent = tensor if direct else tensor.detach().contiguous()
        started.append((broadcast_async_(sent, root_rank, name), tensor, None if direct else sent))
    for handle, tensor, copy in started:
        handles.synchronize(handle)
        if copy is not None:
            tensor.detach().copy_(copy)


def broadcast_optimizer_state(optimizer: optim.Optimizer, root_rank: int, model: nn.Module | None = None) -> None:
    """Replace the optimizer's state and options by those of `root_rank`.

    Where an optimizer has no state yet it is made to create it, as before its first step. `model` is needed if it has
    embeddings with sparse gradients: the state is then created with sparse ones.
    """
    if isinstance(optimizer, ShardedOptimizer):
        optimizer.broadcast_state(root_rank)
    else:
        broadcast_state(optimizer, root_rank, model, _broadcast_tensors)


__all__ = ["allgather_object", "broadcast_object", "broadcast_optimizer_state", "broadcast_parameters"]
