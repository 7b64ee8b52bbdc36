"""Eight bits per element. Vocabulary: a *block* is 128 elements that share a scale, encoded in 132 bytes: the elements
and then the scale as float32. A *share* is what one rank adds up for all: equally many blocks, padded with zeros.

Each rank sends every share to its rank (alltoall), which adds them up in float32 and sends the sum to all (allgather).
Both ways together that is a quarter of the bytes of an allreduce in float32, plus 3 % for scales and at most 6 % for
padding. The rank that rounds remembers the rounding error.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn.functional import pad

from horovod.torch.compression import wire
from horovod.torch.compression.exchanges import Steps
from horovod.torch.compression.memory import Memory, error_of
from horovod.torch.compression.reducing import Job, ReducingCompressor

BLOCK = 128
_FEWEST_BLOCKS_OF_SHARE = 16  # with fewer, padding would make up too much
_LARGEST = 127
_SMALLEST_SCALE = torch.finfo(torch.float32).tiny  # smaller ones have too few bits to divide by


def encode(values: torch.Tensor) -> torch.Tensor:
    """The bytes of float32 elements, shaped (shares, elements). Blocks with an infinity or NaN decode to NaN."""
    blocks = values.view(-1, BLOCK)
    scales = blocks.abs().amax(dim=1, keepdim=True).div_(_LARGEST)
    scales[scales < _SMALLEST_SCALE] = 0
    inverses = torch.where(scales == 0, 0, 1 / scales)
    wire_blocks = torch.empty((len(blocks), BLOCK + 4), dtype=torch.uint8, device=values.device)
    wire_blocks[:, :BLOCK].view(torch.int8).copy_((blocks * inverses).round_())
    wire_blocks[:, BLOCK:].view(torch.float32).copy_(scales)
    return wire_blocks.view(len(values), -1)


def decode(shares: torch.Tensor) -> torch.Tensor:
    """The elements again. One multiplication each, so every rank gets the same bits."""
    wire_blocks = shares.view(-1, BLOCK + 4)
    blocks = wire_blocks[:, :BLOCK].view(torch.int8) * wire_blocks[:, BLOCK:].view(torch.float32)
    return blocks.view(len(shares), -1)


@dataclass
class _Errors:
    sent: torch.Tensor | None = None  # of this rank's values
    summed: torch.Tensor | None = None  # of the sum that this rank makes


class Int8Compressor(ReducingCompressor):
    """Sends floating-point tensors as int8 with a scale for every 128 elements.

    An object remembers errors by name; calling it creates another one with its own memory.
    """

    def __init__(self, error_feedback: bool = True) -> None:
        self._error_feedback = error_feedback
        self._memory = Memory(_Errors)

    def __call__(self, error_feedback: bool = True) -> Int8Compressor:
        """A new compressor that has nothing to remember yet."""
        return Int8Compressor(error_feedback)

    def _is_worth_it(self, job: Job) -> bool:
        return super()._is_worth_it(job) and job.tensor.numel() >= _FEWEST_BLOCKS_OF_SHARE * BLOCK * job.ranks

    def _reduce_steps(self, job: Job) -> Steps:
        elements = job.tensor.numel()
        values = job.values(torch.float32).view(-1)
        share = _padded(-(-elements // job.ranks))
        shares = pad(values, (0, share * job.ranks - elements)).view(job.ranks, share)

        errors, new_errors = self._recall(job), _Errors()
        total = yield from self._sum_share(job, shares, errors, new_errors)
        if errors.summed is not None:
            total += errors.summed
        message = encode(total)
        new_errors.summed = error_of(total, decode(message))
        totals = yield wire.allgather(message, f"{job.name}.int8", job.process_set)
        self._remember(errors, new_errors)
        return decode(totals).view(-1)[:elements].view(job.tensor.shape).to(job.tensor.dtype)

    def _scatter_steps(self, job: Job) -> Steps:
        parts = [part.reshape(-1) for part in job.values(torch.float32).tensor_split(job.ranks)]
        share = _padded(len(parts[0]))  # the first is the largest
        shares = torch.stack([pad(part, (0, share - len(part))) for part in parts])

        errors, new_errors = self._recall(job), _Errors()
        total = yield from self._sum_share(job, shares, errors, new_errors)
        self._remember(errors, new_errors)
        mine = job.tensor[job.rows_of_this_rank()]
        return total.view(-1)[: mine.numel()].view(mine.shape).to(mine.dtype)

    def _sum_share(self, job: Job, shares: torch.Tensor, errors: _Errors, new_errors: _Errors) -> Steps:
        """Send the shares to their ranks; ends with the reduction of this rank's."""
        if errors.sent is not None:
            shares += errors.sent
        message = encode(shares)
        new_errors.sent = error_of(shares, decode(message))
        received = yield wire.alltoall(message, f"{job.name}.int8", job.process_set)
        return decode(received).sum(dim=0, keepdim=True).mul_(job.factor)

    def _recall(self, job: Job) -> _Errors:
        return self._memory.recall(job.memory_name, job.process_set, job.tensor.shape)

    def _remember(self, errors: _Errors, new_errors: _Errors) -> None:
        """Called at the end: a reduction that failed has made no errors."""
        if self._error_feedback:
            errors.sent, errors.summed = new_errors.sent, new_errors.summed


def _padded(elements: int) -> int:
    return -(-elements // BLOCK) * BLOCK
