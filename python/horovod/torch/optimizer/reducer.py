"""Reduces the gradients of an optimizer while backward computes them.

A hook on each parameter notes that its gradient is there. When all gradients of a *bucket* are, their requests go to
the engine in one call, whose thread reduces them while backward goes on, if it has a core to do so; `finish` sends what
is left and waits. Requests are made once and live in a `Batch`, in the order in which gradients become ready; every
rank learns that order by itself in its first step, in which it sends everything at the end. Ranks need not agree on it:
each gradient is negotiated by its own name.

Thread rule: one thread at a time; hooks run in the threads of backward, while the user's thread waits in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import compress

import torch

from horovod._generic.submission import id_of
from horovod._native.batch import Batch
from horovod.common.exceptions import HorovodInternalError
from horovod.torch.optimizer.sending import Wire, prepare
from horovod.torch.optimizer.slots import Bucket, LearningBucket, Slot, cut, is_nested
from horovod.torch.tensors import TorchTensors

_view = TorchTensors().view

# Runs a function at the end of the backward under way. Not public, but what DistributedDataParallel stands on as well.
_at_end_of_backward: Callable[[Callable[[], None]], None] | None = getattr(
    torch.autograd.Variable._execution_engine, "queue_callback", None
)


class Reducer:
    """The gradients of some parameters, reduced over the ranks of a process set once per step."""

    def __init__(self, wire: Wire, passes: int, groups: Sequence[Sequence[str]]) -> None:
        """`groups` holds the names of parameters that travel together."""
        self._wire = wire
        self._is_plain = wire.is_plain
        self._passes = passes
        self._groups = groups
        self._slots: list[Slot] = []
        self._hooks: list[torch.utils.hooks.RemovableHandle] = []
        self._frozen: list[tuple[str, torch.Tensor]] = []  # no hook can be put on a parameter without requires_grad
        self._learning: LearningBucket | None = LearningBucket()
        self._nested = False  # some backward of the first step was started inside another one
        self._buckets: list[Bucket] = []
        self._batch = Batch(0)
        self._set_id: int | None = None  # that the requests in the batch name
        self._in_backward = False  # buckets have been sent, and the end of that backward has not been seen
        self._retried = False  # a backward took the place of one that failed
        self._unfinished: list[Slot] = []  # that have something to do once their reduction is done
        self.paused = False  # gradients are only accumulated

    # ---- parameters

    def add(self, parameters: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Take part in the reduction of these parameters' gradients. Not while reductions are under way."""
        for name, parameter in parameters:
            if not parameter.requires_grad:
                self._frozen.append((name, parameter))
                continue
            slot = Slot(parameter, name, self._passes, LearningBucket())
            self._slots.append(slot)
            hook = parameter.register_post_accumulate_grad_hook(  # type: ignore[no-untyped-call]
                self._make_hook(slot)
            )
            self._hooks.append(hook)
        self._learn()

    def detach(self) -> None:
        """Take the hooks off the parameters."""
        for hook in self._hooks:
            hook.remove()

    def set_passes(self, passes: int) -> None:
        """Reduce after that many backward passes from now on; counting starts again."""
        self._passes = passes
        for slot in self._slots:
            slot.need = passes
        self._reset()
        self._learn()

    # ---- state, for the optimizer

    @property
    def in_flight(self) -> bool:
        """Whether reductions have been started that nobody has waited for, or would have been after the first step."""
        if self._learning is not None:
            return bool(self._learning.ready)
        return any(bucket.sent for bucket in self._buckets)

    @property
    def is_retried(self) -> bool:
        """Whether a backward failed, and another one takes its place."""
        return self._retried

    @property
    def has_news(self) -> bool:
        """Whether a gradient has become ready since the last `finish`."""
        return any(bucket.ready for bucket in self._all_buckets())

    def _all_buckets(self) -> Sequence[Bucket]:
        return self._buckets if self._learning is None else [self._learning]

    # ---- during backward

    def _make_hook(self, slot: Slot) -> Callable[[torch.Tensor], None]:
        def hook(_parameter: torch.Tensor) -> None:
            if self.paused:
                return
            slot.left = left = slot.left - 1
            bucket = slot.bucket
            if left == 0:
                ready = bucket.ready
                ready.append(slot)
                if len(ready) == bucket.count:
                    self._bucket_is_full(bucket)
            if left < 0 or bucket.count == 0:
                self._examine(slot)

        return hook

    def _examine(self, slot: Slot) -> None:
        """In the first step, note how backward works here; later, complain."""
        if self._learning is not None:
            self._note_backward()
            self._nested = self._nested or is_nested()
            if self._nested:
                return
        if slot.left < 0:
            self._in_backward = True  # it will not end well
            slot.bucket.version = -1  # backward has added to a gradient that may be on its way
            raise AssertionError(
                f"the gradient of {slot.name} was computed more often than backward_passes_per_step="
                f"{self._passes} allows before optimizer.step() or synchronize(). To accumulate gradients, raise "
                "backward_passes_per_step, or run all backward passes but the last one under optimizer.no_sync(); "
                "after a backward that failed, call optimizer.zero_grad() first; with torch.utils.checkpoint, "
                "use_reentrant=False computes each gradient once"
            )

    def _bucket_is_full(self, bucket: Bucket) -> None:
        if bucket.sent:
            return  # by a backward that failed: this step's reduction of these gradients is under way
        self._note_backward()
        self._send(bucket, bucket.slots, False)

    def _note_backward(self) -> None:
        if not self._in_backward and _at_end_of_backward is not None:
            _at_end_of_backward(self._backward_ended)
            self._in_backward = True

    def _backward_ended(self) -> None:
        """Send what is ready although others of its bucket are not: perhaps they were not used."""
        self._in_backward = False
        for bucket in self._buckets:
            if bucket.ready and not bucket.sent and not bucket.grouped:
                self._send(bucket, sorted(bucket.ready, key=lambda slot: slot.index), False)

    def forgive_failed_backward(self) -> None:
        """Let a new backward take the place of one that raised, if one did.

        What that one has sent stays this step's gradient, because the other ranks may count on it; the new one
        supplies the rest. So every rank still takes part once in the reduction of every gradient of a step.
        """
        if not self._in_backward:
            return
        self._in_backward = False
        self._retried = True
        for bucket in self._all_buckets():
            bucket.ready.clear()
            for slot in bucket.sent:
                slot.parameter.grad = None  # not to be zeroed: the engine is reading and writing it
        self.count_anew()

    def count_anew(self) -> None:
        """Forget the passes of a backward whose gradients nobody wants."""
        for slot in self._slots:
            slot.left = slot.need

    # ---- sending

    def _send(self, bucket: Bucket, slots: Sequence[Slot], wait_follows: bool) -> None:
        """Start the reductions of these slots of the bucket, which are in the order of their requests."""
        if self._wire.process_set.process_set_id != self._set_id:
            self._describe_all_anew()
        grads = tensors = _simple_gradients(slots) if self._is_plain else None
        if grads is None or tensors is None:
            slots, grads, tensors = self._prepare(bucket, slots)
        if not bucket.sent and grads:
            bucket.version = grads[0]._version
        try:
            self._submit(bucket, slots, [tensor.data_ptr() for tensor in tensors], wait_follows)
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

    # ---- the end of a step

    def finish(self) -> None:
        """Reduce what has not been sent (zeros for a parameter without gradient) and wait for everything.

        Every rank of the set takes part in the reduction of every gradient, whatever its own backward has computed.
        """
        if self._learning is not None:
            self._build(self._learning.ready)
        for bucket in self._buckets:
            if len(bucket.sent) < bucket.count:
                sent = set(bucket.sent)
                self._send(bucket, [slot for slot in bucket.slots if slot not in sent], True)
        self._wait()
        self._adopt_unfrozen()

    def abandon(self) -> None:
        """Wait for what is under way, whatever becomes of it, and begin a step."""
        try:
            self._wait()
        except (HorovodInternalError, RuntimeError, ValueError):
            self._reset()

    def _wait(self) -> None:
        problem: Exception | None = None
        try:
            self._batch.wait()
        except Exception as failure:  # all are done nevertheless
            problem = failure
        self._batch.release()
        if problem is None:
            problem = self._change_by_others()
        with torch.no_grad():
            while self._unfinished:
                finish = self._unfinished[-1].finish
                try:
                    if finish is not None:
                        finish()
                except Exception as failure:
                    problem = problem or failure
                self._unfinished.pop()
        if self._retried:
            for bucket in self._buckets:
                for slot, grad in zip(bucket.sent, bucket.grads, strict=True):
                    slot.parameter.grad = grad
        self._reset()
        if problem is not None:
            raise problem

    def _change_by_others(self) -> Exception | None:
        """A gradient that was written to while it was reduced holds neither the old value nor the average."""
        for bucket in self._buckets:
            if bucket.grads and bucket.grads[0]._version != bucket.version:
                return RuntimeError(
                    f"the gradient of {bucket.sent[0].name} was changed while it was being reduced. To clip or change "
                    "gradients, call optimizer.synchronize() after backward, then change them, and then step with "
                    "`with optimizer.skip_synchronize(): optimizer.step()`"
                )
        return None

    def _reset(self) -> None:
        for bucket in self._all_buckets():
            bucket.reset()
        self.count_anew()
        self._unfinished.clear()
        self._in_backward = False
        self._retried = False

    def _adopt_unfrozen(self) -> None:
        thawed = [(name, parameter) for name, parameter in self._frozen if parameter.requires_grad]
        if not thawed:
            return
        self._frozen = [(name, parameter) for name, parameter in self._frozen if not parameter.requires_grad]
        first = Reducer(self._wire, self._passes, ())  # of this step: the others have been reduced already
        first.add(thawed)
        first.detach()
        first.finish()
        self.add(thawed)

    # ---- buckets

    def _learn(self) -> None:
        self._learning = LearningBucket()
        self._nested = False
        for slot in self._slots:
            slot.bucket = self._learning

    def _build(self, ready: Sequence[Slot]) -> None:
        """Cut the slots into buckets in the order in which they became ready; those that did not come last."""
        if self._nested:
            for slot in self._slots:
                slot.need = max(slot.need, slot.need - slot.left)
        by_name = {slot.name: slot for slot in self._slots}
        groups = [[by_name[name] for name in group if name in by_name] for group in self._groups]
        grouped = {slot for group in groups for slot in group}
        known = set(ready)
        early = [slot for slot in ready if slot not in grouped]
        late = [slot for slot in self._slots if slot not in known and slot not in grouped]
        self._buckets = [Bucket(group, grouped=True) for group in groups if group]
        self._buckets += [Bucket(stretch) for part in (early, late) for stretch in cut(part)]
        self._batch = Batch(len(self._slots))
        self._set_id = None
        for index, slot in enumerate(slot for bucket in self._buckets for slot in bucket.slots):
            slot.index = index
        if ready:
            self._learning = None
            for bucket in self._buckets:
                for slot in bucket.slots:
                    slot.bucket = bucket


def _simple_gradients(slots: Sequence[Slot]) -> list[torch.Tensor] | None:
    """The gradients, if all are as their requests describe them and can be reduced in place; this is the usual case."""
    grads: list[torch.Tensor] = []
    for slot in slots:
        grad = slot.parameter.grad
        if grad is None or grad.dtype is not slot.dtype or grad.numel() != slot.numel or not grad.is_contiguous():
            return None
        grads.append(grad)
    return grads
