"""The requests of an optimizer's gradients: made once, in the order of the buckets, and submitted in every step.

Thread rule: as for the Reducer that owns them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import compress

import torch

from horovod._generic.submission import id_of
from horovod._native.batch import Batch
from horovod.torch.optimizer.sending import Wire, prepare
from horovod.torch.optimizer.slots import Bucket, Slot
from horovod.torch.tensors import TorchTensors

_view = TorchTensors().view


class Requests:
    """One request for each slot; a slot's `index` is its place."""

    def __init__(self, slots: Sequence[Slot], wire: Wire) -> None:
        self._slots = slots
        self._wire = wire
        self._is_plain = wire.is_plain
        self._batch = Batch(len(slots))
        self._set_id: int | None = None  # that the requests name
        self._unfinished: list[Slot] = []  # that have something to do once their reduction is done

    @property
    def batch(self) -> Batch:
        """The requests themselves."""
        return self._batch

    # ---- sending

    def send(self, bucket: Bucket, slots: Sequence[Slot], wait_follows: bool) -> None:
        """Start the reductions of these slots of the bucket, which are in the order of their requests."""
        if self._wire.process_set.process_set_id != self._set_id:
            self._describe_all_anew()
        grads = tensors = _simple_gradients(slots) if self._is_plain else None
        if grads is None or tensors is None:
            slots, grads, tensors = self._prepare(bucket, slots)
        try:
            self._submit(bucket, slots, _addresses(slots, tensors), wait_follows)
        except Exception:
            under_way = [self._batch.in_flight(slot.index) for slot in slots]
            slots, grads = list(compress(slots, under_way)), list(compress(grads, under_way))
            raise
        finally:
            bucket.sent += slots
            bucket.grads += grads

    def _prepare(
        self, bucket: Bucket, slots: Sequence[Slot]
    ) -> tuple[list[Slot], list[torch.Tensor], list[torch.Tensor]]:
        """Prepare gradients that are not simple. Returns those slots whose requests are then to be submitted, their
        gradients, and the tensors to reduce for them; the others are under way."""
        native: list[Slot] = []
        grads: list[torch.Tensor] = []
        tensors: list[torch.Tensor] = []
        with torch.no_grad():
            for slot in slots:
                grad, tensor = prepare(slot, self._wire, bucket.grouped)
                if slot.finish is not None:
                    self._unfinished.append(slot)
                if tensor is None:
                    bucket.sent.append(slot)
                    bucket.grads.append(grad)
                    continue
                if tensor.dtype is not slot.dtype or tensor.shape != slot.shape:
                    self._describe(slot, tensor)
                native.append(slot)
                grads.append(grad)
                tensors.append(tensor)
        return native, grads, tensors

    def _submit(self, bucket: Bucket, slots: Sequence[Slot], addresses: Sequence[int], wait_follows: bool) -> None:
        batch = self._batch
        if len(slots) == bucket.count:
            start = slots[0].index
            batch.point(start, addresses)
            (batch.submit_group if bucket.grouped else batch.submit)(start, start + bucket.count, wait_follows)
            return
        for slot, address in zip(slots, addresses, strict=True):
            batch.point(slot.index, (address,))
            batch.submit(slot.index, slot.index + 1, wait_follows)

    def _describe(self, slot: Slot, tensor: torch.Tensor) -> None:
        wire = self._wire
        slot.dtype, slot.shape, slot.numel = tensor.dtype, tensor.shape, tensor.numel()
        self._batch.describe(
            slot.index,
            f"allreduce.{slot.name}",
            _view(tensor).dtype,
            tensor.shape,
            wire.op,
            id_of(wire.process_set),
            wire.prescale_factor,
            wire.postscale_factor,
        )

    def _describe_all_anew(self) -> None:
        """The process set has another number since Horovod was started again."""
        self._set_id = id_of(self._wire.process_set)
        for slot in self._slots:
            slot.dtype = None

    # ---- waiting

    def wait(self) -> Exception | None:
        """Wait until everything is done; return what went wrong, if anything did."""
        problem: Exception | None = None
        try:
            self._batch.wait()
        except Exception as failure:  # all are done nevertheless
            problem = failure
        self._batch.release()
        return problem

    def wait_except(self, missing: Collection[Slot]) -> Exception | None:
        """Wait until everything is done but these slots, and finish it; return what went wrong, if anything did."""
        problem: Exception | None = None
        try:
            self._batch.wait_except([slot.index for slot in missing])
        except Exception as failure:
            problem = failure
        done = [slot for slot in self._unfinished if slot not in missing]
        left = [slot for slot in self._unfinished if slot in missing]
        self._unfinished = done
        problem = self.finish(problem)
        self._unfinished = left
        return problem

    def finish(self, problem: Exception | None) -> Exception | None:
        """Do what remains to be done for gradients that are not simple; return `problem`, or the first one here."""
        with torch.no_grad():
            while self._unfinished:
                finish = self._unfinished[-1].finish
                try:
                    if finish is not None:
                        finish()
                except Exception as failure:
                    problem = problem or failure
                self._unfinished.pop()
        return problem

    def forget(self) -> None:
        """Forget what is under way: its world is gone, or it is not needed."""
        self._batch.release()
        self._unfinished.clear()
        self._set_id = None


def _simple_gradients(slots: Sequence[Slot]) -> list[torch.Tensor] | None:
    """The gradients, if all are as their requests describe them and can be reduced in place; this is the usual case.

    Asked in every step: a model may have been converted, or moved to another device, since the last one.
    """
    grads: list[torch.Tensor] = []
    for slot in slots:
        grad = slot.parameter.grad
        if (
            grad is None
            or grad.dtype is not slot.dtype
            or grad.numel() != slot.numel
            or not grad.is_contiguous()
            or not grad.is_cpu
        ):
            return None
        grads.append(grad)
    return grads


def _addresses(slots: Sequence[Slot], tensors: Sequence[torch.Tensor]) -> list[int]:
    addresses = [tensor.data_ptr() for tensor in tensors]
    if 0 in addresses:
        for slot, tensor, address in zip(slots, tensors, addresses, strict=True):
            if address == 0 and tensor.numel() > 0:
                raise ValueError(
                    f"the gradient of {slot.text()} is a {type(tensor).__name__} without its own memory, which "
                    "cannot be reduced; gradients must be ordinary tensors"
                )
    return addresses
