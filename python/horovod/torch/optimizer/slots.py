"""The gradients of an optimizer on their way: one slot for each parameter, several slots in a bucket."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

import torch
from torch.autograd.function import BackwardCFunction

# The first bucket is small, so that communication starts soon after backward; the others are large enough that their
# number does not matter, and small enough that little is left when backward ends.
FIRST_BUCKET_BYTES = 1 << 20
BUCKET_BYTES = 16 << 20

_FUNCTION_IN_BACKWARD = BackwardCFunction.apply.__code__


class Slot:
    """One parameter's gradient: how often it is still to be computed before it can be reduced, and what is sent."""

    __slots__ = ("bucket", "dtype", "finish", "index", "left", "name", "need", "numel", "parameter", "shape", "sparse")

    def __init__(self, parameter: torch.Tensor, name: str, need: int, bucket: Bucket) -> None:
        self.parameter = parameter
        self.name = name
        self.need = need
        self.left = need
        self.bucket = bucket
        self.index = 0  # in the batch of requests
        self.dtype: torch.dtype | None = None  # that the request describes, as the shape; None: not described yet
        self.shape: torch.Size | None = None
        self.numel = 0
        self.sparse = False  # its gradient has been sparse before
        self.finish: Callable[[], None] | None = None  # what is to be done once the reduction is done


class Bucket:
    """Slots that are submitted together, once the gradient of each is there."""

    __slots__ = ("count", "grads", "grouped", "ready", "sent", "slots", "version")

    def __init__(self, slots: Sequence[Slot], grouped: bool = False) -> None:
        self.slots = slots
        self.grouped = grouped and len(slots) > 1
        self.count = len(slots)
        self.ready: list[Slot] = []
        self.sent: list[Slot] = []  # not all of them if a backward ended without the others
        self.grads: list[torch.Tensor] = []  # of those that are sent, kept until they are reduced
        self.version = 0  # of the first of these when it was sent

    def reset(self) -> None:
        """Back to the beginning of a step."""
        self.ready.clear()
        self.sent.clear()
        self.grads.clear()


class LearningBucket(Bucket):
    """Where all slots are in the first step: notes the order in which gradients become ready, and is never full."""

    def __init__(self) -> None:
        super().__init__([])  # a count of 0 is never reached


def is_nested() -> bool:
    """Whether this hook runs in a backward inside another one, as re-entrant checkpointing starts them.

    There a parameter's gradient may become ready several times in one backward of the user.
    """
    frame = sys._getframe(1).f_back
    while frame is not None:
        if frame.f_code is _FUNCTION_IN_BACKWARD:
            return True
        frame = frame.f_back
    return False


def cut(slots: Sequence[Slot]) -> list[list[Slot]]:
    """Stretches of the slots for buckets of the sizes above."""
    stretches: list[list[Slot]] = []
    room = 0
    for slot in slots:
        if room <= 0:
            room = BUCKET_BYTES if stretches else FIRST_BUCKET_BYTES
            stretches.append([])
        stretches[-1].append(slot)
        room -= slot.parameter.numel() * slot.parameter.element_size()
    return stretches
