"""Makes the state and options of all ranks' optimizers those of one rank.

The root describes its state in one pickled object: shapes for dense tensors, anything else as it is. The other ranks
make theirs look the same, and then the tensors are broadcast in place.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn, optim

from horovod._generic.objects import broadcast_object
from horovod.torch.mpi_ops import rank

Named = tuple[str | None, Tensor]


@dataclass
class _Slot:
    """A dense tensor in the state of a parameter."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    in_host_memory: bool  # also if the parameter is not, as a counter of steps

    @staticmethod
    def of(tensor: Tensor) -> _Slot:
        return _Slot(tuple(tensor.shape), tensor.dtype, tensor.is_cpu)

    def fits(self, value: object) -> bool:
        return isinstance(value, Tensor) and value.layout == torch.strided and _Slot.of(value) == self

    def make(self, parameter: Tensor) -> Tensor:
        device = torch.device("cpu") if self.in_host_memory else parameter.device
        return torch.empty(self.shape, dtype=self.dtype, device=device)


@dataclass
class _Description:
    options: list[dict[str, Any]]  # of each parameter group
    counts: list[int]  # of each group's parameters
    states: list[dict[str, Any] | None]  # of each parameter: a _Slot or a value for each key; None: it has no state

    @staticmethod
    def of(optimizer: optim.Optimizer) -> _Description:
        def described(value: Any) -> Any:
            dense = isinstance(value, Tensor) and value.layout == torch.strided
            return _Slot.of(value) if dense else value

        def of_state(parameter: Tensor) -> dict[str, Any] | None:
            state = optimizer.state.get(parameter)
            return None if state is None else {key: described(value) for key, value in state.items()}

        groups = optimizer.param_groups
        return _Description(
            options=[{key: _on_host(value) for key, value in group.items() if key != "params"} for group in groups],
            counts=[len(group["params"]) for group in groups],
            states=[of_state(parameter) for parameter in _parameters(optimizer)],
        )


def broadcast_state(
    optimizer: optim.Optimizer,
    root_rank: int,
    model: nn.Module | None,
    broadcast_tensors: Callable[[Sequence[Named], int], None],
) -> None:
    """See broadcast_optimizer_state in functions.py."""
    if isinstance(optimizer, optim.LBFGS):
        raise ValueError(
            "the state of torch.optim.LBFGS cannot be broadcast, it has no place for each parameter; broadcast "
            "optimizer.state_dict() with hvd.broadcast_object and load it"
        )
    if not optimizer.state:
        _create_state(optimizer, model)
    is_root = rank() == root_rank
    mine = _Description.of(optimizer) if is_root else None
    roots: _Description = broadcast_object(mine, root_rank, name="optimizer_state")
    if not is_root:
        _take_over(optimizer, roots)
    tensors: list[Named] = [
        (f"optimizer_state.{index}.{key}", optimizer.state[parameter][key])
        for index, (parameter, state) in enumerate(zip(_parameters(optimizer), roots.states, strict=True))
        for key, value in (state or {}).items()
        if isinstance(value, _Slot)
    ]
    broadcast_tensors(tensors, root_rank)


def _parameters(optimizer: optim.Optimizer) -> list[Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _on_host(option: Any) -> Any:
    return option.detach().cpu() if isinstance(option, Tensor) else option


def _take_over(optimizer: optim.Optimizer, roots: _Description) -> None:
    """Set options and state to the root's; the elements of dense tensors are still to come."""
    counts = [len(group["params"]) for group in optimizer.param_groups]
    if counts != roots.counts:
        raise ValueError(
            f"the optimizer has parameter groups of {counts} parameters, on the root of {roots.counts}: "
            f"all ranks must build the same model and the same groups"
        )
    for group, options in zip(optimizer.param_groups, roots.options, strict=True):
        for key, value in options.items():
            current = group.get(key)
            if isinstance(value, Tensor) and isinstance(current, Tensor) and current.shape == value.shape:
                current.copy_(value)  # a learning rate that compiled or captured code holds
            else:
                group[key] = value
    for parameter, state in zip(_parameters(optimizer), roots.states, strict=True):
        if state is None:
            optimizer.state.pop(parameter, None)
            continue
        current = optimizer.state.get(parameter, {})
        optimizer.state[parameter] = {key: _filled(value, current.get(key), parameter) for key, value in state.items()}


def _filled(value: Any, current: Any, parameter: Tensor) -> Any:
    if not isinstance(value, _Slot):
        return value
    return current if value.fits(current) else value.make(parameter)


class _FirstValues(dict[str, Any]):
    """Keeps a copy of the first value given to each key: a parameter's state before its first step."""

    def __init__(self) -> None:
        super().__init__()
        self.first: dict[str, Any] = {}

    def __setitem__(self, key: str, value: Any) -> None:
        if key not in self.first:
            self.first[key] = value.clone() if isinstance(value, Tensor) else copy.deepcopy(value)
        super().__setitem__(key, value)


def _create_state(optimizer: optim.Optimizer, model: nn.Module | None) -> None:
    """Have the optimizer create its state, by a step with gradients of 0 that leaves no trace but these gradients."""
    followed = [parameter for parameter in _parameters(optimizer) if parameter.requires_grad]
    own_gradients = {parameter: parameter.grad for parameter in followed if parameter.grad is not None}
    values = [parameter.detach().clone() for parameter in followed]
    decays = [group.get("weight_decay") for group in optimizer.param_groups]
    state = optimizer.state
    sparse = _sparse_parameters(optimizer, model)
    try:
        for parameter in followed:
            parameter.grad = _no_gradient(parameter, parameter in sparse)
        for group, decay in zip(optimizer.param_groups, decays, strict=True):
            if decay is not None:
                group["weight_decay"] = 0.0
        optimizer.state = defaultdict(_FirstValues)
        _base_class(optimizer).step(optimizer)
        for parameter, created in optimizer.state.items():
            assert isinstance(created, _FirstValues)
            if created.first:
                state[parameter] = created.first
    finally:
        optimizer.state = state
        for group, decay in zip(optimizer.param_groups, decays, strict=True):
            if decay is not None:
                group["weight_decay"] = decay
        for parameter, value in zip(followed, values, strict=True):
            parameter.detach().copy_(value)
            parameter.grad = own_gradients.get(parameter, parameter.grad)
    for group in optimizer.param_groups:
        if group.get("dampening"):  # SGD's first step differs from one with momentum 0
            for parameter in group["params"]:
                if parameter in state:
                    state[parameter]["momentum_buffer"] = None


def _base_class(optimizer: optim.Optimizer) -> type[optim.Optimizer]:
    """The class that does the steps: not one of Horovod's, whose step is a collective."""
    return next(each for each in type(optimizer).__mro__ if not each.__module__.startswith("horovod."))


def _sparse_parameters(optimizer: optim.Optimizer, model: nn.Module | None) -> set[Tensor]:
    if isinstance(optimizer, optim.SparseAdam):
        return set(_parameters(optimizer))
    modules = model.modules() if model is not None else ()
    return {each.weight for each in modules if isinstance(each, nn.Embedding | nn.EmbeddingBag) and each.sparse}


def _no_gradient(parameter: Tensor, sparse: bool) -> Tensor:
    if not sparse:
        return torch.zeros_like(parameter)
    rows = torch.empty((1, 0), dtype=torch.int64, device=parameter.device)
    values = parameter.new_empty((0, *parameter.shape[1:]))
    return torch.sparse_coo_tensor(rows, values, parameter.shape, is_coalesced=True, check_invariants=False)
