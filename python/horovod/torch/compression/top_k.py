"""The largest elements only. Each rank sends its k largest values with their places to all (allgather) and keeps the
others for the next time; the sum of what all sent is taken in the order of the ranks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from horovod.torch.compression import wire
from horovod.torch.compression.exchanges import Steps
from horovod.torch.compression.memory import Memory, error_of
from horovod.torch.compression.reducing import Job, ReducingCompressor


@dataclass
class _Errors:
    unsent: torch.Tensor | None = None


class TopKCompressor(ReducingCompressor):
    """Sends the given share of the elements, those with the largest values.

    Useful while share times ranks is well below 1: every rank receives what every other has sent.
    """

    def __init__(self, ratio: float = 0.01, error_feedback: bool = True) -> None:
        if not 0 < ratio <= 1:
            raise ValueError(f"ratio is the share of elements to send, above 0 and at most 1, not {ratio}")
        self._ratio = ratio
        self._error_feedback = error_feedback
        self._memory = Memory(_Errors)

    def _reduce_steps(self, job: Job) -> Steps:
        errors = self._memory.recall(job.memory_name, job.process_set, job.tensor.shape)
        values = job.values(torch.promote_types(job.tensor.dtype, torch.float32)).view(-1)
        if errors.unsent is not None:
            values += errors.unsent
        count = math.ceil(self._ratio * values.numel())
        places = values.abs().topk(count, sorted=False).indices
        largest = values[places]

        # One message: the bytes of the values, then those of the places. It is a row, so that ranks that disagree on
        # the number of elements are told so.
        index_type = torch.int32 if values.numel() <= torch.iinfo(torch.int32).max else torch.int64
        places_bytes = places.to(index_type).view(torch.uint8)
        message = torch.cat([largest.view(torch.uint8), places_bytes]).unsqueeze(0)
        gathered = yield wire.allgather(message, f"{job.name}.topk", job.process_set)

        total = torch.zeros_like(values)
        for part in gathered:
            theirs, where = part[: -len(places_bytes)], part[-len(places_bytes) :]
            total.index_add_(0, where.clone().view(index_type), theirs.clone().view(values.dtype))
        if self._error_feedback:
            sent = torch.zeros_like(values).index_copy_(0, places, largest)
            errors.unsent = error_of(values, sent)
        return total.mul_(job.factor).view(job.tensor.shape).to(job.tensor.dtype)
