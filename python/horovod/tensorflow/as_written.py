"""Keeps AutoGraph away: it would rewrite Horovod's own functions whenever a function of the user calls one of them.

There is nothing to rewrite in them, and it takes seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import tensorflow as tf

F = TypeVar("F", bound=Callable[..., Any])


def as_written(function: F) -> F:
    """Return the function, which will run as it is written, and all that it calls too."""
    wrapped: F = tf.autograph.experimental.do_not_convert(function)
    return wrapped
