"""What graph_break.py needs of torch.compile; importing it imports the compiler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def _call(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return function(*args, **kwargs)


_disable: Callable[..., Any] = torch.compiler.disable
run: Callable[..., Any] = _disable(_call, reason="collectives run outside of graphs")
