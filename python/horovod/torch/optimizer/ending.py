"""Calling a function at the end of the backward that the user started.

PyTorch runs callbacks at the end of a graph task. A backward inside another one, as re-entrant checkpointing starts
them, is a task of its own: its end is in the middle of the user's backward. There the function is handed on to the
enclosing task, through a hook on a node that this one still has to run.

Thread rule: for hooks, in the threads of backward.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.autograd.function import BackwardCFunction

# Not public, but DistributedDataParallel relies on it, too.
_queue_callback: Callable[[Callable[[], None]], None] | None = getattr(
    torch.autograd.Variable._execution_engine, "queue_callback", None
)
_FUNCTION_IN_BACKWARD = BackwardCFunction.apply.__code__


def at_end_of_task(call: Callable[[], None]) -> bool:
    """Call this at the end of the current innermost backward. False: not possible, nothing will be called."""
    if _queue_callback is None:
        return False
    try:
        _queue_callback(call)
    except RuntimeError:  # the hook was not called by PyTorch's engine, but by a compiled backward
        return False
    return True


def at_end_of_backward(call: Callable[[], None]) -> bool:
    """Call this at the end of the user's current backward. False: not possible, nothing will be called."""
    node = enclosing_node()
    following = [] if node is None else [each for each, _ in node.next_functions if each is not None]
    if not following:
        return at_end_of_task(call)

    def hand_on(_gradients: Any) -> None:
        handle.remove()
        at_end_of_backward(call)

    handle = following[0].register_prehook(hand_on)
    return True


def enclosing_node() -> Any:
    """The node of an enclosing backward, whose function has started the one that this hook runs in; None: none has."""
    frame = sys._getframe(1).f_back
    while frame is not None:
        if frame.f_code is _FUNCTION_IN_BACKWARD:
            return frame.f_locals["self"]
        frame = frame.f_back
    return None
