"""Says early, and in words, that XLA cannot compile Horovod's operations."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf


@functools.cache
def _is_compiled() -> Callable[[Any], bool]:
    """The function that returns whether a graph, or one around it, is that of a `tf.function(jit_compile=True)`.

    It is not part of TensorFlow's public interface. Without it XLA's own error comes later, when the function first
    runs: it reports that there is no kernel for the operation.
    """
    try:
        from tensorflow.python.ops.control_flow_util import GraphOrParentsInXlaContext
    except ImportError:
        return lambda graph: False
    found: Callable[[Any], bool] = GraphOrParentsInXlaContext
    return found


def refuse_xla(op: str) -> None:
    """Raise RuntimeError in a function that XLA compiles: it has no kernels for Horovod's operations."""
    if not tf.executing_eagerly() and _is_compiled()(tf.compat.v1.get_default_graph()):
        raise RuntimeError(
            f"{op} cannot be compiled by XLA: call it outside tf.function(jit_compile=True), or pass jit_compile=False "
            f"to tf.function or model.compile"
        )
