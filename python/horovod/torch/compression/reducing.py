"""Compressors that run the whole reduction: their common base.

Thread rule: any thread; reductions of one name one after the other.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from horovod._generic.handles import handles
from horovod._generic.reduce_ops import Average, Sum
from horovod._generic.submission import Reduction, id_of
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.torch.compression import wire
from horovod.torch.compression.exchanges import Steps, exchanges

if TYPE_CHECKING:
    from typing_extensions import TypeIs

# Below this many elements the time of an exchange is latency, and one allreduce, fused with others, is the fastest.
SMALL = 4096


@dataclass(frozen=True)
class Job:
    """One tensor to reduce."""

    tensor: torch.Tensor
    memory_name: str | None  # None: nothing is remembered
    name: str  # in the negotiation
    process_set: ProcessSet
    ranks: int  # in the set
    op: int
    prescale: float
    postscale: float

    @property
    def factor(self) -> float:
        """The factor for the sum over the ranks."""
        return self.postscale / self.ranks if self.op == Average else self.postscale

    def values(self, dtype: torch.dtype) -> torch.Tensor:
        """The scaled input in a type to calculate with; new memory."""
        values = self.tensor.to(dtype, copy=True, memory_format=torch.contiguous_format)
        return values if self.prescale == 1.0 else values.mul_(self.prescale)

    def rows_of_this_rank(self) -> slice:
        """This rank's part in reducescatter: the first ranks get one row more if they cannot all get the same."""
        rank = self.process_set.rank()
        assert rank is not None
        each, more = divmod(self.tensor.shape[0], self.ranks)
        first = rank * each + min(rank, more)
        return slice(first, first + each + (rank < more))


class ReducingCompressor(ABC):
    """A compressor that exchanges the tensors itself, for Average and Sum of dense floating-point tensors.

    The error of one reduction is added to the next one of the same name (error feedback), unless the name is None.
    Tensors that are small or not of a floating-point type are reduced as they are. All ranks get the same bits. While a
    rank has joined (`hvd.join`), larger ones fail: it cannot take part in their exchanges.
    """

    def reduce_async(
        self,
        tensor: torch.Tensor,
        name: str | None,
        op: int = Average,
        process_set: ProcessSet = global_process_set,
        prescale: float = 1.0,
        postscale: float = 1.0,
    ) -> Callable[[], torch.Tensor]:
        """Start an allreduce; the result of this call waits for it and returns the reduced tensor."""
        job = _make_job("allreduce", tensor, name, op, process_set, prescale, postscale)
        steps = self._reduce_steps(job) if self._is_worth_it(job) else _plain_steps(job)
        return _start("allreduce", job, steps)

    def reducescatter_async(
        self,
        tensor: torch.Tensor,
        name: str | None,
        op: int = Average,
        process_set: ProcessSet = global_process_set,
        prescale: float = 1.0,
        postscale: float = 1.0,
    ) -> Callable[[], torch.Tensor]:
        """Start a reducescatter; the result of this call waits for it and returns this rank's rows."""
        if tensor.ndim == 0:
            raise ValueError("reducescatter needs a tensor with rows, not a scalar")
        job = _make_job("reducescatter", tensor, name, op, process_set, prescale, postscale)
        steps = self._scatter_steps(job) if self._is_worth_it(job) else _plain_scatter_steps(job)
        return _start("reducescatter", job, steps)

    def run(
        self,
        verb: str,
        tensors: Sequence[torch.Tensor],
        name: str | None,
        reduction: Reduction,
        process_set: ProcessSet,
    ) -> list[torch.Tensor]:
        """Run [grouped_]allreduce or [grouped_]reducescatter and wait. Members of a group are named as elsewhere."""
        op, prescale, postscale = reduction
        if not tensors:
            raise ValueError(f"{verb} needs at least one tensor")
        start = self.reducescatter_async if verb.endswith("reducescatter") else self.reduce_async
        is_named_group = verb.startswith("grouped_") and name is not None
        waits = []
        for i, tensor in enumerate(tensors):
            own_name = f"{name}_{i + 1}of{len(tensors)}" if is_named_group else name
            waits.append(start(tensor, own_name, op, process_set, prescale, postscale))
        return [wait() for wait in waits]

    def _is_worth_it(self, job: Job) -> bool:
        return job.ranks > 1 and job.tensor.dtype.is_floating_point and job.tensor.numel() >= SMALL

    @abstractmethod
    def _reduce_steps(self, job: Job) -> Steps:
        """The exchange that ends with the reduced tensor."""

    def _scatter_steps(self, job: Job) -> Steps:
        """The exchange that ends with this rank's rows."""
        reduced = yield from self._reduce_steps(job)
        return reduced[job.rows_of_this_rank()].clone()


def is_reducing(compression: object) -> TypeIs[ReducingCompressor]:
    """Whether the argument `compression` runs the reduction itself; if not it has `compress` and `decompress`."""
    if isinstance(compression, type) and issubclass(compression, ReducingCompressor):
        raise ValueError(f"compression takes an object: write {compression.__name__}(...), with brackets")
    return isinstance(compression, ReducingCompressor)


def _make_job(
    verb: str,
    tensor: torch.Tensor,
    name: str | None,
    op: int,
    process_set: ProcessSet,
    prescale: float,
    postscale: float,
) -> Job:
    if op not in (Average, Sum):
        raise ValueError(f"{verb} with this compression can do op=hvd.Average and op=hvd.Sum only, not {op}")
    if tensor.layout != torch.strided:
        raise ValueError(f"{verb} with this compression needs a dense tensor, not {tensor.layout}")
    id_of(process_set)
    process_set.rank()  # ValueError if this process is not a member
    ranks = process_set.size()
    assert ranks is not None
    number = handles.next_number()
    return Job(
        tensor=tensor.detach(),
        memory_name=None if name is None else f"{verb}.{name}",
        name=f"noname.{number}" if name is None else name,
        process_set=process_set,
        ranks=ranks,
        op=op,
        prescale=prescale,
        postscale=postscale,
    )


def _start(verb: str, job: Job, steps: Steps) -> Callable[[], torch.Tensor]:
    key = (verb, job.process_set.process_set_id, job.name)
    exchange = exchanges.start(key, job.name, steps)
    return lambda: exchanges.finish(exchange)


def _plain_steps(job: Job) -> Steps:
    return (yield wire.allreduce(job.tensor, job.name, job.process_set, job.op, job.prescale, job.postscale))


def _plain_scatter_steps(job: Job) -> Steps:
    return (yield wire.reducescatter(job.tensor, job.name, job.process_set, job.op, job.prescale, job.postscale))
