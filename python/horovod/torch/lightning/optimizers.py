"""Wrapping Lightning's optimizers in hvd.DistributedOptimizer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import torch

from horovod.torch.optimizer import DistributedOptimizer


def distribute(
    optimizers: Sequence[torch.optim.Optimizer],
    schedulers: Sequence[Any],
    module: torch.nn.Module,
    options: dict[str, Any],
) -> list[torch.optim.Optimizer]:
    """The optimizers, wrapped; schedulers drive the wrapped ones from now on."""
    known = {parameter: name for name, parameter in module.named_parameters()}
    wrapped = []
    for index, optimizer in enumerate(optimizers):
        prefix = "" if len(optimizers) == 1 else f"optimizer.{index}."  # a parameter may be in several
        names = [
            (f"{prefix}{known.get(parameter, f'group.{i}.{j}')}", parameter)
            for i, group in enumerate(optimizer.param_groups)
            for j, parameter in enumerate(group["params"])
        ]
        twin = DistributedOptimizer(optimizer, named_parameters=names, **options)
        for scheduler in schedulers:
            if scheduler.optimizer is optimizer:
                scheduler.optimizer = twin
                twin.step = _noting_its_calls(twin, twin.step)
        wrapped.append(twin)
    return wrapped


def _noting_its_calls(optimizer: Any, step: Callable[..., Any]) -> Callable[..., Any]:
    """Schedulers warn about an optimizer that has not stepped before them, and know it by these attributes."""

    @wraps(step)
    def noted(*args: Any, **kwargs: Any) -> Any:
        optimizer._opt_called = True
        return step(*args, **kwargs)

    noted._wrapped_by_lr_sched = True  # type: ignore[attr-defined]
    return noted


def has_news(optimizer: Any) -> bool:
    """Whether a backward has computed gradients that have not been waited for."""
    return optimizer._reducer is not None and optimizer._reducer.has_news


def release(optimizer: Any) -> None:
    """Remove the hooks from the parameters: when the optimizer itself goes is up to the garbage collector."""
    if optimizer._reducer is not None:
        optimizer._reducer.detach()
