"""Reduces the gradients of an optimizer while backward computes them.

A hook on each parameter records that its gradient is ready. When all gradients of a *bucket* are, their requests go to
the engine in one call, whose thread reduces them while backward goes on, if it has a core to do so. At the end of
backward the rest of what is ready is sent, and everything is waited for that all ranks have sent (missing.py): when
backward returns, gradients are *final*. `finish` sends and waits for what is left in `step()`; with
HOROVOD_TORCH_WAIT_IN_STEP=1 that is where all waiting happens.

Requests are made once, in the order in which gradients become ready; every rank determines that order itself in its
first step, in which it sends everything at the end of backward. Ranks need not agree on it: each gradient is negotiated
by its own name.

Thread rule: one thread at a time; hooks run in the threads of backward, while the user's thread waits in it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence

import torch

from horovod._generic.handles import handles
from horovod.common.exceptions import HorovodInternalError
from horovod.torch.optimizer.ending import at_end_of_backward, at_end_of_task, enclosing_node
from horovod.torch.optimizer.missing import Missing
from horovod.torch.optimizer.requests import Requests
from horovod.torch.optimizer.sending import Wire
from horovod.torch.optimizer.slots import Bucket, LearningBucket, Slot, make_buckets

# Reducers whose optimizers are gone while the engine still uses their memory.
_abandoned: list[Reducer] = []


class Reducer:
    """The gradients of some parameters, reduced over the ranks of a process set once per step."""

    # Of a step.
    _in_backward: bool  # a gradient has become ready, and the end of that backward has not been seen
    _retried: bool  # a backward took the place of one that failed
    _sent_before: int  # number of gradients sent at the last exchange between the ranks
    _done: set[Slot]  # whose gradients are final, while others are not
    _problem: Exception | None  # with those, for the end of the step
    _watched: list[tuple[Slot, torch.Tensor, int]]  # on their way while the user's code runs; with versions
    _spoiled: Slot | None  # backward has added to its gradient after that was sent
    # Of the first step, whose buckets are made at the end of backward.
    _learning: LearningBucket | None  # None: it is over
    _nested: bool  # some backward was started inside another one
    _passes_seen: int
    _known: int  # how many slots were ready when the buckets were made; -1: they are not made
    _requests: Requests
    _missing: Missing

    def __init__(self, wire: Wire, passes: int, groups: Sequence[Sequence[str]]) -> None:
        """`groups` has the names of parameters that are sent together."""
        self._wire = wire
        self._passes = passes
        self._groups = groups
        self._waits_in_step = os.environ.get("HOROVOD_TORCH_WAIT_IN_STEP", "0") not in ("", "0")
        self._slots: list[Slot] = []
        self._hooks: list[torch.utils.hooks.RemovableHandle] = []
        self._frozen: list[tuple[str, torch.Tensor]] = []  # no hook can be put on a parameter without requires_grad
        self._buckets: list[Bucket] = []
        self._final = False  # the gradients are those of all ranks, and no step has used them
        self.paused = False  # gradients are only accumulated
        self._learn()
        handles.when_restarted(self._leave_world)

    # ---- parameters

    def add(self, parameters: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Take part in the reduction of these parameters' gradients. RuntimeError while reductions are under way."""
        if self._sent > 0:
            raise RuntimeError("parameters cannot be added while gradients are being reduced; add them after step()")
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
        if self._sent > 0:
            _abandoned.append(self)  # until the world ends

    def set_passes(self, passes: int) -> None:
        """Reduce after that many backward passes from now on; counting starts again."""
        self.abandon()
        self._passes = passes
        for slot in self._slots:
            slot.need = slot.left = passes
        self._learn()

    # ---- state, for the optimizer

    @property
    def in_flight(self) -> bool:
        """Whether gradients have become ready that were not waited for."""
        return (self._learning is not None and bool(self._learning.ready)) or self._sent > 0

    @property
    def is_retried(self) -> bool:
        """Whether a backward failed, and another one takes its place."""
        return self._retried

    @property
    def is_final(self) -> bool:
        """Whether the gradients are those of all ranks since the last backward, and no step has used them."""
        return self._final

    @property
    def has_news(self) -> bool:
        """Whether a gradient has become ready that is not final."""
        return any(bucket.ready for bucket in self._all_buckets())

    @property
    def _sent(self) -> int:
        return sum(len(bucket.sent) for bucket in self._buckets)

    def _all_buckets(self) -> Sequence[Bucket]:
        return self._buckets if self._learning is None else [self._learning, *self._buckets]

    # ---- during backward

    def _make_hook(self, slot: Slot) -> Callable[[torch.Tensor], None]:
        def hook(_parameter: torch.Tensor) -> None:
            if self.paused:
                return
            slot.left = left = slot.left - 1
            bucket = slot.bucket
            if left == 0:
                if not self._in_backward:
                    self._note_backward()
                ready = bucket.ready
                ready.append(slot)
                if len(ready) == bucket.count and not bucket.sent:  # else: sent by a backward that failed
                    self._requests.send(bucket, bucket.slots, False)
            if left < 0 or bucket.count == 0:
                self._examine(slot)

        return hook

    def _note_backward(self) -> None:
        self._in_backward = at_end_of_backward(self._backward_ended)

    def _examine(self, slot: Slot) -> None:
        """In the first step, note how backward works here; later, complain."""
        if self._learning is not None:
            if not self._in_backward:
                self._note_backward()
            self._nested = self._nested or enclosing_node() is not None
            if self._nested:
                return
        if slot.left < 0:
            self._in_backward = True  # it will not end well
            self._spoiled = slot
            raise AssertionError(
                f"the gradient of {slot.text()} was computed more often than backward_passes_per_step="
                f"{self._passes} allows before optimizer.step() or synchronize(). To accumulate gradients, raise "
                "backward_passes_per_step, or run all backward passes but the last one under optimizer.no_sync(); "
                "after a backward that failed, call optimizer.zero_grad() first; with torch.utils.checkpoint, "
                "use_reentrant=False computes each gradient once"
            )

    # ---- the end of backward

    def _backward_ended(self) -> None:
        """Send ready gradients of incomplete buckets, and tell the other ranks which ones are missing here."""
        if not self._in_backward:
            return
        self._in_backward = False
        self._send_ready()
        if self._sent == self._sent_before:
            return
        if not self._missing.is_open:
            self._open_round(not self._waits_in_step)
        if self._waits_in_step:
            self._watch()
        elif not at_end_of_task(self._wait_in_backward):  # when the other optimizers of this backward have sent theirs
            self._wait_in_backward()

    def _send_ready(self) -> None:
        ready: set[Slot] | None = None
        if self._learning is not None:
            self._passes_seen += 1
            if self._nested and self._passes_seen < self._passes:
                return  # a gradient that is computed several times in one pass only seems to be ready
            ready = set(self._learning.ready)
            self._make_buckets_of_first_step()
        for bucket in self._buckets:
            if len(bucket.sent) == bucket.count:
                continue
            slots = bucket.unsent(set(bucket.ready) if ready is None else ready)
            if slots and (len(slots) == bucket.count or not bucket.grouped):
                self._requests.send(bucket, slots, not self._waits_in_step)

    def _wait_in_backward(self) -> None:
        if not self._close_round():
            self._watch()
            return
        self._end_step()
        self._final = True
        self._adopt_unfrozen()

    def _open_round(self, wait_follows: bool) -> None:
        self._sent_before = self._sent
        everything = self._sent_before == len(self._slots)
        sent = None if everything else {slot for bucket in self._buckets for slot in bucket.sent}
        self._missing.open(sent, wait_follows)

    def _close_round(self) -> bool:
        """Wait for what all ranks have sent; True if that is everything, which is left for `_end_step` to wait for."""
        missing = self._missing.close()
        if not missing:
            return True
        self._problem = self._requests.wait_except(missing) or self._problem
        self._done = {slot for bucket in self._buckets for slot in bucket.sent if slot not in missing}
        return False

    def _watch(self) -> None:
        self._watched = [
            (slot, grad, grad._version)
            for bucket in self._buckets
            for slot, grad in zip(bucket.sent, bucket.grads, strict=True)
            if slot not in self._done
        ]

    # ---- a backward that fails

    def forgive_failed_backward(self) -> None:
        """Let a new backward take the place of one that raised, if one did.

        The gradient already sent stays this step's gradient, because the other ranks may count on it; the new one
        supplies the rest. So every rank still takes part once in the reduction of every gradient of a step.
        """
        if not self._in_backward:
            return
        self._in_backward = False
        self._retried = self._retried or self._sent > 0
        for bucket in self._all_buckets():
            bucket.ready.clear()
            for slot in bucket.sent:
                slot.parameter.grad = None  # not to be zeroed: the engine is reading and writing it
        self.count_anew()

    def count_anew(self) -> None:
        """Forget the passes of a backward whose gradients are not needed."""
        self._final = False
        self._passes_seen = 0
        if self._sent == 0:
            self._spoiled = None
        for slot in self._slots:
            slot.left = slot.need

    # ---- the end of a step

    def take(self) -> bool:
        """Begin a step if the gradients of the last one are final; False if they are not."""
        if not self._final:
            return False
        problem = self._change_by_others()
        self.count_anew()
        if problem is not None:
            raise problem
        self._adopt_unfrozen()
        return True

    def finish(self) -> None:
        """Reduce the gradients not yet sent (zeros for a parameter without gradient) and wait for everything.

        Every rank of the set takes part in the reduction of every gradient, whatever its own backward has computed.
        """
        if self._learning is not None:
            self._make_buckets_of_first_step()
        for bucket in self._buckets:
            if len(bucket.sent) < bucket.count:
                self._requests.send(bucket, bucket.unsent(bucket.slots), True)
        while self._slots:
            if not self._missing.is_open:
                self._open_round(True)
            if self._close_round():
                break
        self._end_step()
        self.count_anew()
        self._adopt_unfrozen()

    def abandon(self) -> None:
        """Wait for what is under way, whatever becomes of it, and begin a step."""
        try:
            if self._missing.is_open:
                self._missing.close()
            self._end_step()
        except (HorovodInternalError, RuntimeError, ValueError):
            self._clear()
        self.count_anew()

    def _end_step(self) -> None:
        """Wait for everything. The counts stay as they are, unless there was an error."""
        problem = self._requests.wait() or self._problem or self._change_by_others()
        problem = self._requests.finish(problem)
        if self._retried:
            for bucket in self._buckets:
                for slot, grad in zip(bucket.sent, bucket.grads, strict=True):
                    slot.parameter.grad = grad
                    slot.left = 0
        self._learn_from_first_step()
        self._clear()
        if problem is not None:
            self.count_anew()
            raise problem

    def _change_by_others(self) -> Exception | None:
        """A gradient that was written to while it was reduced holds neither the old value nor the average."""
        changed = [slot for slot, grad, version in self._watched if grad._version != version]
        if self._spoiled is not None:
            changed.append(self._spoiled)
        if not changed:
            return None
        return RuntimeError(
            f"the gradient of {changed[0].text()} was changed while it was being reduced, because not all ranks had "
            "computed all gradients at the end of backward, or HOROVOD_TORCH_WAIT_IN_STEP is set. To clip or change "
            "gradients there, call optimizer.synchronize() after backward, then change them, and then step with "
            "`with optimizer.skip_synchronize(): optimizer.step()`"
        )

    def _clear(self) -> None:
        for bucket in self._all_buckets():
            bucket.reset()
        self._done = set()
        self._problem = None
        self._watched = []
        self._spoiled = None
        self._sent_before = 0
        self._in_backward = False
        self._retried = False

    def _leave_world(self) -> None:
        """A new world has been formed: operations of the old one have ended, and its handles are invalid."""
        self._requests.forget()
        self._missing.forget()
        self._clear()
        self.count_anew()
        if self in _abandoned:
            _abandoned.remove(self)

    def _adopt_unfrozen(self) -> None:
        thawed = [(name, parameter) for name, parameter in self._frozen if parameter.requires_grad]
        if not thawed:
            return
        self._frozen = [(name, parameter) for name, parameter in self._frozen if not parameter.requires_grad]
        first = Reducer(self._wire, self._passes, ())  # of this step: the others have already been reduced
        first.add(thawed)
        first.detach()
        first.finish()
        self.add(thawed)

    # ---- buckets

    def _learn(self) -> None:
        """Begin with a first step, in which nothing is under way."""
        self._learning = LearningBucket()
        self._nested = False
        self._passes_seen = 0
        self._known = -1
        self._buckets = []
        self._requests = Requests(self._slots, self._wire)
        self._missing = Missing(self._slots, self._wire)
        self._clear()
        for slot in self._slots:
            slot.bucket = self._learning

    def _make_buckets_of_first_step(self) -> None:
        assert self._learning is not None
        if self._known < 0:
            self._known = len(self._learning.ready)
            self._make_buckets(self._learning.ready)

    def _make_buckets(self, ready: Sequence[Slot]) -> None:
        self._buckets = make_buckets(self._slots, ready, self._groups)
        self._requests = Requests(self._slots, self._wire)

    def _learn_from_first_step(self) -> None:
        """From now on slots have buckets of their own, and are sent when these are full."""
        if self._learning is None or self._known < 0:
            return
        ready = self._learning.ready
        if not ready:
            self._known = -1
            return
        if self._nested:
            for slot in self._slots:
                slot.need = max(slot.need, slot.need - slot.left)
        if len(ready) > self._known:  # some became ready after these buckets were made
            self._make_buckets(ready)
        self._learning = None
        for bucket in self._buckets:
            for slot in bucket.slots:
                slot.bucket = bucket
