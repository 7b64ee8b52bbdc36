"""Elastic training: continue when hosts come and go. `TorchState` is the state, `run` the loop around training."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from horovod.common.elastic import run_fn
from horovod.torch.elastic.loader import ElasticDataLoader
from horovod.torch.elastic.sampler import ElasticSampler
from horovod.torch.elastic.state import TorchState
from horovod.torch.mpi_ops import init, shutdown

R = TypeVar("R")


def run(func: Callable[..., R]) -> Callable[..., R]:
    """Decorator of the training function, whose first argument is the state.

    When a collective fails it is called again from the last commit, when hosts changed from where it is; in between,
    a new world is formed.
    """
    return run_fn(func, _form_new_world)


def _form_new_world() -> None:
    shutdown()
    init()


__all__ = ["ElasticDataLoader", "ElasticSampler", "TorchState", "run"]
