"""The parts of torch.compile for graph_break.py; importing it imports the compiler."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch


def _call(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return function(*args, **kwargs)


_disable: Callable[..., Any] = torch.compiler.disable
_takes_reason = "reason" in inspect.signature(_disable).parameters  # since PyTorch 2.8
_options = {"reason": "collectives run outside of graphs"} if _takes_reason else {}
run: Callable[..., Any] = _disable(_call, **_options)
