"""Which gradients some rank has not sent yet, as all ranks know it.

At the end of a backward a rank may wait only for what all ranks have sent: one that did not use a parameter sends its
gradient in `step()`, and may wait for this rank somewhere before that. So the ranks exchange what they have not sent.
Each rank takes part in such a *round* when one of its backwards ends or in `step()`, whichever comes first, and all get
the same answer. There are rounds until it says that nothing is missing: in a usual step that is one, of a small tensor
that goes with the last gradients.

Thread rule: as for the Reducer that owns it.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from ctypes import addressof, c_float

from horovod._generic.reduce_ops import Average, Sum
from horovod._generic.submission import id_of
from horovod._native.abi import DType
from horovod._native.batch import Batch
from horovod.torch.optimizer.sending import Wire
from horovod.torch.optimizer.slots import Slot


class Missing:
    """The rounds of one optimizer; its gradients are known by their places in the order of their names."""

    def __init__(self, slots: Sequence[Slot], wire: Wire) -> None:
        self._slots = sorted(slots, key=lambda slot: slot.name)
        self._wire = wire
        # First whether anything is missing, so that this one has to be looked at in the usual case; then for each slot.
        # The usual type of gradients, and reduced like them, so that they can be sent together.
        self._marks = (c_float * (1 + len(slots)))()
        self._batch = Batch(1)
        self._set_id: int | None = None  # that the request names
        self.is_open = False  # this rank takes part in a round, and has not seen its end

    def open(self, sent: Container[Slot] | None, wait_follows: bool) -> None:
        """Take part in a round with what this rank has sent; None: everything."""
        if sent is not None:
            for place, slot in enumerate(self._slots, 1):
                if slot not in sent:
                    self._marks[place] = self._marks[0] = 1.0
        self._describe()
        self._batch.submit(0, 1, wait_follows)
        self.is_open = True

    def close(self) -> set[Slot]:
        """Wait until all ranks have taken part in the round, and return what one of them has not sent."""
        try:
            self._batch.wait()
        except Exception:
            self.forget()
            raise
        self._batch.release()
        self.is_open = False
        if self._marks[0] == 0.0:
            return set()
        missing = {slot for place, slot in enumerate(self._slots, 1) if self._marks[place] != 0.0}
        self._clear()
        return missing

    def forget(self) -> None:
        """Give up the round."""
        self._batch.release()
        self._clear()
        self.is_open = False

    def _clear(self) -> None:
        self._marks[:] = [0.0] * len(self._marks)

    def _describe(self) -> None:
        wire = self._wire
        if wire.process_set.process_set_id == self._set_id:
            return
        self._set_id = id_of(wire.process_set)
        self._batch.describe(
            0,
            f"missing_gradients.{self._slots[0].name}",
            DType.FLOAT32,
            (len(self._marks),),
            wire.op if wire.op in (Average, Sum) else Sum,
            self._set_id,
            wire.prescale_factor,
            wire.postscale_factor,
        )
        self._batch.point(0, (addressof(self._marks),))
