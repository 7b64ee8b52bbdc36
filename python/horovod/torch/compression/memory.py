"""The state of a compressor for each tensor between reductions: mainly its error, which it adds
to the next value (error feedback). Small values that are left out again and again so arrive in the end. When a
GradScaler changes its scale, what is remembered counts once with the old one.

Thread rule: any thread; dict operations are atomic.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import torch

from horovod._generic.handles import handles
from horovod.common.process_sets import ProcessSet

S = TypeVar("S")


class Memory(Generic[S]):
    """A state of type S per process set and name. All of it is forgotten with the world, as the ranks' states belong
    together; that of one name when the tensor's shape changes. A tensor without a name has a new state every time."""

    def __init__(self, make: Callable[[], S]) -> None:
        self._make = make
        self._world = handles.world
        self._states: dict[tuple[str, tuple[int, ...]], tuple[torch.Size, S]] = {}

    def recall(self, name: str | None, process_set: ProcessSet, shape: torch.Size) -> S:
        """The state of a tensor."""
        if name is None:
            return self._make()
        if self._world != handles.world:
            self._states.clear()
            self._world = handles.world
        key = (name, tuple(process_set.ranks or ()))
        known_shape, state = self._states.get(key, (None, None))
        if state is None or known_shape != shape:
            state = self._make()
            self._states[key] = (shape, state)
        return state


def error_of(wanted: torch.Tensor, sent: torch.Tensor) -> torch.Tensor:
    """The part missing in `sent`. Overflows, which mixed precision causes occasionally, are not remembered."""
    return torch.nan_to_num_(wanted - sent, nan=0.0, posinf=0.0, neginf=0.0)
