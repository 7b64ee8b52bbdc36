"""Low rank (PowerSGD, Vogels et al. 2019). The sum M of the ranks' matrices is approximated by P Q', of which P and Q
have few columns: one step of the power method, which starts from the Q of the previous time.

    P = orthonormal(sum of M_rank Q)       one small allreduce
    Q = sum of M_rank' P                   another
    M ~ P Q'
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import torch

from horovod.torch.compression import wire
from horovod.torch.compression.exchanges import Steps
from horovod.torch.compression.memory import Memory, error_of
from horovod.torch.compression.reducing import Job, ReducingCompressor


@dataclass
class _State:
    right: torch.Tensor | None = None  # Q, the same on all ranks
    error: torch.Tensor | None = None  # of this rank's matrix


class PowerSGDCompressor(ReducingCompressor):
    """Sends matrices as products of two with `rank` columns; vectors as they are.

    A tensor with more dimensions is the matrix of its first one against the others. All ranks get the same bits as long
    as their CPUs run the same matrix code.
    """

    def __init__(self, rank: int = 4, error_feedback: bool = True) -> None:
        if rank < 1:
            raise ValueError(f"rank must be at least 1, not {rank}")
        self._rank = rank
        self._error_feedback = error_feedback
        self._memory = Memory(_State)

    def _is_worth_it(self, job: Job) -> bool:
        if job.tensor.ndim < 2 or not super()._is_worth_it(job):
            return False
        rows, elements = job.tensor.shape[0], job.tensor.numel()
        return self._rank * (rows + elements // rows) < elements

    def _reduce_steps(self, job: Job) -> Steps:
        state = self._memory.recall(job.memory_name, job.process_set, job.tensor.shape)
        matrix = job.values(torch.promote_types(job.tensor.dtype, torch.float32)).view(job.tensor.shape[0], -1)
        if state.error is not None:
            matrix += state.error
        right = self._start_values(job.name, state, matrix)

        left = yield wire.allreduce(_product(matrix, right), f"{job.name}.p", job.process_set)
        left = torch.linalg.qr(left).Q.contiguous()
        mine = _product(matrix.T, left)
        right = yield wire.allreduce(mine, f"{job.name}.q", job.process_set)
        state.right = right
        if self._error_feedback:
            state.error = error_of(matrix, _product(left, mine.T))
        reduced = _product(left, right.T)
        return reduced.mul_(job.factor).view(job.tensor.shape).to(job.tensor.dtype)

    def _start_values(self, name: str, state: _State, matrix: torch.Tensor) -> torch.Tensor:
        """The previous Q. Random if that is useless: at first, and after zeros or an overflow, in which
        the power method would be stuck forever."""
        before = matrix.new_zeros(matrix.shape[1], self._rank) if state.right is None else state.right
        lengths = before.norm(dim=0)
        usable = (lengths > 0) & lengths.isfinite()
        if usable.all():
            return before
        same_everywhere = torch.Generator().manual_seed(zlib.crc32(name.encode()))
        fresh = torch.randn(before.shape, generator=same_everywhere).to(before)
        return torch.where(usable, before, fresh)


def _product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    with torch.autocast(a.device.type, enabled=False):
        return a @ b
