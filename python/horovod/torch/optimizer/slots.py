"""The gradients of an optimizer on their way: one slot for each parameter, several slots in a bucket."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence

import torch

# The first bucket is small, so that communication starts soon after backward; the others are large enough that their
# number does not matter, and small enough that little is left when backward ends.
FIRST_BUCKET_BYTES = 1 << 20
BUCKET_BYTES = 16 << 20


class Slot:
    """One parameter's gradient: how many passes are left before it can be reduced, and the tensor to send."""

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

    def text(self) -> str:
        """The parameter in messages: a name derived from its index is not informative alone."""
        if ".noname." not in self.name:
            return self.name
        return f"{self.name} (a parameter of shape {tuple(self.parameter.shape)})"


class Bucket:
    """Slots that are submitted together, when all their gradients are ready."""

    __slots__ = ("count", "grads", "grouped", "ready", "sent", "slots")

    def __init__(self, slots: Sequence[Slot], grouped: bool = False) -> None:
        self.slots = slots
        self.grouped = grouped and len(slots) > 1
        self.count = len(slots)
        self.ready: list[Slot] = []
        self.sent: list[Slot] = []  # not all of them if a backward ended without the others
        self.grads: list[torch.Tensor] = []  # of those that are sent, kept until they are reduced

    def unsent(self, ready: Container[Slot]) -> list[Slot]:
        """Those of its slots that are ready and have not been sent, in the order of their requests."""
        sent = set(self.sent)
        return [slot for slot in self.slots if slot in ready and slot not in sent]

    def reset(self) -> None:
        """Back to the beginning of a step."""
        self.ready.clear()
        self.sent.clear()
        self.grads.clear()


class LearningBucket(Bucket):
    """Where all slots are in the first step: notes the order in which gradients become ready, and is never full.

    They are sent at the end of backward, from buckets that were made for this step.
    """

    def __init__(self) -> None:
        super().__init__([])  # a count of 0 is never reached


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


def make_buckets(slots: Sequence[Slot], ready: Sequence[Slot], groups: Sequence[Sequence[str]]) -> list[Bucket]:
    """Cut the slots into buckets in the order in which they became ready; those that did not come last.

    `groups` holds names; each group is a bucket.
    """
    by_name = {slot.name: slot for slot in slots}
    members = [[by_name[name] for name in group if name in by_name] for group in groups]
    grouped = {slot for group in members for slot in group}
    known = set(ready)
    early = [slot for slot in ready if slot not in grouped]
    late = [slot for slot in slots if slot not in known and slot not in grouped]
    buckets = [Bucket(group, grouped=True) for group in members if group]
    buckets += [Bucket(stretch) for part in (early, late) for stretch in cut(part)]
    for index, slot in enumerate(slot for bucket in buckets for slot in bucket.slots):
        slot.index = index
    return buckets
