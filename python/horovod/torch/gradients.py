"""The verbs through which gradients flow. Horovod's rules are averages where an adjoint would be a sum:

    allreduce       the same allreduce of the output's gradient
    allgather       the average of the output's gradient, of which this rank's rows
    broadcast       the average of the output's gradient; on other ranks than the root multiplied by 0
    alltoall        the alltoall that sends every row of the gradient back; rows that were not sent have gradient 0
    reducescatter   the allgather of the output's gradient, times the number of ranks if op is Sum, times both factors

A gradient is a collective like its verb: all ranks run backward or none. It is named after its verb's name, so that
only verbs without a name have to come in the same order on all ranks. Where no gradient is asked for, the verbs are
those of `Collectives`: an `autograd.Function` would cost as much as a small collective.

Thread rule: any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from horovod._generic.collectives import Collectives
from horovod._generic.compression import Compressor, NoneCompressor
from horovod._generic.handles import handles
from horovod._generic.reduce_ops import Average, Sum, choose_reduce_op
from horovod._generic.submission import Reduction, called
from horovod._native.library import checked, library
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.torch.compression import ReducingCompressor, is_reducing
from horovod.torch.staging import StagedCollectives

Gradients = tuple[Tensor | None, ...]
_AVERAGE = Reduction(Average, 1.0, 1.0)


def _is_followed(tensor: Tensor) -> bool:
    """Whether autograd records operations on the tensor."""
    return isinstance(tensor, Tensor) and tensor.requires_grad and torch.is_grad_enabled()


def _refuse_scalar(verb: str, name: str | None, tensor: Tensor) -> None:
    if isinstance(tensor, Tensor) and tensor.dim() == 0:
        raise IndexError(f"{called(verb, name)}: a scalar has no first dimension; pass tensor.reshape(1)")


@dataclass
class _Call:
    """A call of a verb: how to run it, and the data that its gradient needs."""

    plain: Callable[[Sequence[Tensor]], Sequence[Tensor]]
    collectives: TorchCollectives
    verb: str
    name: str | None
    process_set: ProcessSet
    reduction: Reduction = _AVERAGE
    root_rank: int = -1

    @property
    def gradient_name(self) -> str | None:
        return None if self.name is None else f"gradient.{self.verb}.{self.name}"

    def allreduce(self, gradients: Sequence[Tensor], reduction: Reduction) -> list[Tensor]:
        """The gradients reduced, as one group: several verbs without a name would have to keep an order."""
        given = [gradient.contiguous() for gradient in gradients]
        return self.collectives.grouped_allreduce(
            given, None, self.gradient_name, NoneCompressor, *reduction, self.process_set
        )


class _Verb(torch.autograd.Function):
    """Runs a call on one tensor or on a group. Subclasses know the gradient of those outputs that have one."""

    @staticmethod
    def forward(ctx: Any, call: _Call, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.call = call
        ctx.differentiable = [tensor.is_floating_point() or tensor.is_complex() for tensor in tensors]
        ctx.rows = [tensor.shape[0] if tensor.dim() else 0 for tensor in tensors]
        return tuple(call.plain(tensors))

    @staticmethod
    def wanted(ctx: Any, gradients: Sequence[Tensor]) -> list[Tensor]:
        """The gradients of what can have one. Not `needs_input_grad`, which may differ between ranks."""
        return [gradient for gradient, use in zip(gradients, ctx.differentiable, strict=True) if use]

    @staticmethod
    def results(ctx: Any, gradients: Sequence[Tensor]) -> Gradients:
        """The gradients of all arguments of forward."""
        rest = iter(gradients)
        return None, *(next(rest) if use else None for use in ctx.differentiable)


class _Allreduce(_Verb):
    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Gradients:
        return _Verb.results(ctx, ctx.call.allreduce(_Verb.wanted(ctx, gradients), ctx.call.reduction))


class _Allgather(_Verb):
    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Gradients:
        call: _Call = ctx.call
        mine = [rows for rows, use in zip(ctx.rows, ctx.differentiable, strict=True) if use]
        everyones = call.collectives.allgather_async(torch.tensor([mine]), call.gradient_name, call.process_set)
        averages = call.allreduce(_Verb.wanted(ctx, gradients), _AVERAGE)
        before = handles.synchronize(everyones)[: call.process_set.rank()].sum(0).tolist()
        return _Verb.results(ctx, [each.narrow(0, *at) for *at, each in zip(before, mine, averages, strict=True)])


class _Broadcast(_Verb):
    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Gradients:
        call: _Call = ctx.call
        (average,) = call.allreduce(gradients, _AVERAGE)
        is_root = checked(library().hvd_rank()) == call.root_rank
        return None, average if is_root else average * 0


class _Alltoall(_Verb):
    @staticmethod
    def forward(ctx: Any, call: _Call, *tensors: Tensor) -> tuple[Tensor, ...]:
        output, received = _Verb.forward(ctx, call, *tensors)
        ctx.received = received.tolist()
        ctx.mark_non_differentiable(received)
        return output, received

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Gradients:
        call: _Call = ctx.call
        returned, _ = call.collectives.alltoall(
            gradients[0].contiguous(), ctx.received, call.gradient_name, call.process_set
        )
        unsent = ctx.rows[0] - returned.shape[0]
        if unsent:
            returned = torch.cat([returned, returned.new_zeros(unsent, *returned.shape[1:])])
        return None, returned


class _Reducescatter(_Verb):
    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Gradients:
        call: _Call = ctx.call
        op, *factors = call.reduction
        if op == Sum:
            factors.insert(0, call.process_set.size() or 1)
        given = _Verb.wanted(ctx, gradients)
        for factor in factors:
            given = given if factor == 1 else [gradient * factor for gradient in given]
        given = [gradient.contiguous() for gradient in given]
        return _Verb.results(ctx, call.collectives.grouped_allgather(given, call.gradient_name, call.process_set))


class TorchCollectives(StagedCollectives):
    """The collective operations on tensors; those that wait for their result can be differentiated."""

    def allreduce(
        self,
        tensor: Tensor,
        average: bool | None = None,
        name: str | None = None,
        compression: type[Compressor] | ReducingCompressor = NoneCompressor,
        op: int | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
    ) -> Tensor:
        """Return the element-wise reduction of the tensor over all ranks of the set; the input is not changed.

        Its gradient is the same reduction of the output's gradient.
        """
        if not (_is_followed(tensor) or is_reducing(compression)):
            return super().allreduce(
                tensor, average, name, compression, op, prescale_factor, postscale_factor, process_set
            )
        reduction = Reduction(choose_reduce_op(op, average), prescale_factor, postscale_factor)

        def plain(tensors: Sequence[Tensor]) -> Sequence[Tensor]:
            return [Collectives.allreduce(self, tensors[0], None, name, NoneCompressor, *reduction, process_set)]

        call = _Call(plain, self, "allreduce", name, process_set, reduction)
        return _compressed(_Allreduce, call, compression, [tensor])[0]

    def grouped_allreduce(
        self,
        tensors: Sequence[Tensor],
        average: bool | None = None,
        name: str | None = None,
        compression: type[Compressor] | ReducingCompressor = NoneCompressor,
        op: int | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
    ) -> list[Tensor]:
        """Return the reductions of the tensors, which are one operation: all or none is executed.

        The gradients are the same grouped reduction of the outputs' gradients.
        """
        if not (any(map(_is_followed, tensors)) or is_reducing(compression)):
            return super().grouped_allreduce(
                tensors, average, name, compression, op, prescale_factor, postscale_factor, process_set
            )
        reduction = Reduction(choose_reduce_op(op, average), prescale_factor, postscale_factor)

        def plain(tensors: Sequence[Tensor]) -> Sequence[Tensor]:
            return Collectives.grouped_allreduce(self, tensors, None, name, NoneCompressor, *reduction, process_set)

        call = _Call(plain, self, "grouped_allreduce", name, process_set, reduction)
        return _compressed(_Allreduce, call, compression, tensors)

    def allgather(
        self, tensor: Tensor, name: str | None = None, process_set: ProcessSet = global_process_set
    ) -> Tensor:
        """Return the tensors of all ranks of the set, concatenated along the first dimension in rank order.

        The first dimension may differ between ranks, also be 0; the others may not. The gradient is this rank's rows of
        the average of the output's gradient.
        """
        _refuse_scalar("allgather", name, tensor)
        if not _is_followed(tensor):
            return super().allgather(tensor, name, process_set)

        def plain(tensors: Sequence[Tensor]) -> Sequence[Tensor]:
            return [Collectives.allgather(self, tensors[0], name, process_set)]

        return _apply(_Allgather, _Call(plain, self, "allgather", name, process_set), tensor)[0]

    def grouped_allgather(
        self, tensors: Sequence[Tensor], name: str | None = None, process_set: ProcessSet = global_process_set
    ) -> tuple[Tensor, ...]:
        """Return the allgathers of the tensors, which are one operation; gradients as for `allgather`."""
        for tensor in tensors:
            _refuse_scalar("grouped_allgather", name, tensor)
        if not any(map(_is_followed, tensors)):
            return super().grouped_allgather(tensors, name, process_set)

        def plain(tensors: Sequence[Tensor]) -> Sequence[Tensor]:
            return Collectives.grouped_allgather(self, tensors, name, process_set)

        call = _Call(plain, self, "grouped_allgather", name, process_set)
        return _apply(_Allgather, call, *tensors)

    def broadcast(
        self, tensor: Tensor, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
    ) -> Tensor:
        """Return the tensor of `root_rank`, which is a rank of the world also in a smaller set.

        The gradient is the average of the output's gradient on the root, and 0 on other ranks.
        """
        if not _is_followed(tensor):
            return super().broadcast(tensor, root_rank, name, process_set)

        def plain(tensors: Sequence[Tensor]) -> Sequence[Tensor]:
            return [Collectives.broadcast(self, tensors[0], root_rank, name, process_set)]

        call = _Call(plain, self, "broadcast", name, process_set, root_rank=root_rank)
        return _apply(_Broadcast, call, tensor)[0]

    def alltoall(
        self,
        tensor: Tensor,
        splits: Any = None,
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Send `splits[r]` rows to each rank r of the set and return the received rows in rank order.

        Without splits the rows are divided evenly and only the output is returned; with splits, `(output,
        received_splits)`. Rows beyond the sum of the splits are not sent. The gradient is sent back the same way.
        """
        if not _is_followed(tensor):
            return super().alltoall(tensor, splits, name, process_set)

        def plain(tensors: Sequence[Tensor]) -> Sequence[Tensor]:
            both: Sequence[Tensor] = self.synchronize(self.alltoall_async(tensors[0], splits, name, process_set))
            return both

        output, received = _apply(_Alltoall, _Call(plain, self, "alltoall", name, process_set), tensor)
        return output if splits is None else (output, received)

    def reducescatter(
        self,
        tensor: Tensor,
        name: str | None = None,
        compression: type[Compressor] | ReducingCompressor = NoneCompressor,
        op: int = Average,
        process_set: ProcessSet = global_process_set,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
    ) -> Tensor:
        """Reduce over all ranks of the set and return this rank's rows of the result.

        The first `rows % size` ranks get one row more than the others. Only Sum and Average. The gradient is the
        allgather of the output's gradient, scaled.
        """
        if not (_is_followed(tensor) or is_reducing(compression)):
            return super().reducescatter(tensor, name, compression, op, process_set, prescale_factor, postscale_factor)
        reduction = Reduction(op, prescale_factor, postscale_factor)

        def plain(tensors: Sequence[Tensor]) -> Sequence[Tensor]:
            return [Collectives.reducescatter(self, tensors[0], name, NoneCompressor, op, process_set, *reduction[1:])]

        call = _Call(plain, self, "reducescatter", name, process_set, reduction)
        return _compressed(_Reducescatter, call, compression, [tensor])[0]

    def grouped_reducescatter(
        self,
        tensors: Sequence[Tensor],
        name: str | None = None,
        compression: type[Compressor] | ReducingCompressor = NoneCompressor,
        op: int = Average,
        process_set: ProcessSet = global_process_set,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
    ) -> list[Tensor]:
        """Return the reducescatters of the tensors, which are one operation; gradients as for `reducescatter`."""
        if not (any(map(_is_followed, tensors)) or is_reducing(compression)):
            return super().grouped_reducescatter(
                tensors, name, compression, op, process_set, prescale_factor, postscale_factor
            )
        reduction = Reduction(op, prescale_factor, postscale_factor)

        def plain(tensors: Sequence[Tensor]) -> Sequence[Tensor]:
            return Collectives.grouped_reducescatter(
                self, tensors, name, NoneCompressor, op, process_set, *reduction[1:]
            )

        call = _Call(plain, self, "grouped_reducescatter", name, process_set, reduction)
        return _compressed(_Reducescatter, call, compression, tensors)


def _apply(verb: type[_Verb], call: _Call, *tensors: Tensor) -> tuple[Tensor, ...]:
    apply: Callable[..., tuple[Tensor, ...]] = verb.apply
    return apply(call, *tensors)


def _compressed(
    verb: type[_Verb], call: _Call, compression: type[Compressor] | ReducingCompressor, tensors: Sequence[Tensor]
) -> list[Tensor]:
    """Run a followed call between compression and decompression, which autograd follows too."""
    if is_reducing(compression):
        reducing = compression
        call.plain = lambda given: reducing.run(call.verb, given, call.name, call.reduction, call.process_set)
        return list(_apply(verb, call, *tensors))
    small = [compression.compress(tensor) for tensor in tensors]
    outputs = _apply(verb, call, *(tensor for tensor, _ in small))
    return [compression.decompress(output, context) for output, (_, context) in zip(outputs, small, strict=True)]
