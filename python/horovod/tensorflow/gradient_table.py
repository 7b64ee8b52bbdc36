"""The gradients of the graph operations by name. op_gradients.py fills the table; the verbs that it uses read it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Gradient = Callable[..., Any]

GRADIENTS: dict[str, Gradient] = {}
