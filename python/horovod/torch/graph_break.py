"""Collectives run outside the graphs of torch.compile: they depend on other processes, and on ctypes.

A compiled function that calls one is split there into two graphs. PyTorch would do so itself, but only after it
has traced through the verb and compiled pieces of it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import torch

P = ParamSpec("P")
R = TypeVar("R")

# The former came with PyTorch 2.3.
_is_compiling: Callable[[], bool] = getattr(torch.compiler, "is_compiling", None) or torch._utils.is_compiling
_run: Callable[..., Any] | None = None  # calls a function with nothing of it compiled; None until something is


def outside_graphs(verb: Callable[P, R]) -> Callable[P, R]:
    """The verb, which the compiler does not look into."""

    @functools.wraps(verb)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if _is_compiling():
            _load()
        if _run is not None:
            result: R = _run(verb, args, kwargs)
            return result
        return verb(*args, **kwargs)

    return call


def _load() -> None:
    """Set `_run`. The compiler imports the module while it traces; before, that would cost a second of import."""
    global _run
    from horovod.torch.uncompiled import run

    _run = run
