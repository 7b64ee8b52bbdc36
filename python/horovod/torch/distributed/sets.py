"""The process sets of groups. Members form a set with the first group of these ranks and leave it with the last one.

Thread rule: any thread; threads that make groups of the same ranks agree on the order among the ranks.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from ctypes import byref, c_int32

from horovod._generic.handles import handles
from horovod._native.abi import Code, Handle
from horovod._native.library import checked, library
from horovod.torch.distributed.errors import TimeoutError, error_of

ALONE = -1  # instead of a set: the group has one rank, and everything is local
_SLICE = 0.2  # seconds; between two of them Python delivers signals, such as Ctrl-C


class _Set:
    """A process set and how many groups use it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.id: int | None = None
        self.users = 0
        self.is_ours = False


class Sets:
    """The sets of one world of the engine, whose number `handles.world` is `world`."""

    def __init__(self, world: int) -> None:
        self._world = world
        self._lock = threading.Lock()
        self._sets: dict[tuple[int, ...], _Set] = {}
        self._left: set[int] = set()  # ids that this rank has left, and that may exist until the other members do so

    def acquire(self, ranks: Sequence[int], seconds: float) -> int:
        """The id of the set of these ranks, of which this rank is one. Waits until all of them ask for it."""
        if len(ranks) == 1:
            return ALONE
        if len(ranks) == checked(library().hvd_size()):
            return 0
        members = tuple(ranks)
        with self._lock:
            entry = self._sets.setdefault(members, _Set())
            entry.users += 1
        try:
            with entry.lock:
                if entry.id is None:
                    entry.id = self._find(members)  # the program may have added it
                    entry.is_ours = entry.id is None
                if entry.id is None:
                    entry.id = _form(members, seconds)
                    with self._lock:
                        self._left.discard(entry.id)  # ids are used again
                return entry.id
        except BaseException:
            self.release(ranks)
            raise

    def release(self, ranks: Sequence[int]) -> None:
        """A group of these ranks has ended here."""
        with self._lock:
            entry = self._sets.get(tuple(ranks))
            if entry is None:
                return
            entry.users -= 1
            if entry.users > 0:
                return
            del self._sets[tuple(ranks)]
            if not entry.is_ours or entry.id is None or self._world != handles.world:
                return  # the set is the program's, or has ended with its world
            self._left.add(entry.id)
        library().hvd_leave_process_set(entry.id)  # fails if the world has ended, and the set with it

    def _find(self, members: tuple[int, ...]) -> int | None:
        """The set of these ranks that the program has added, if it has."""
        count = checked(library().hvd_process_set_ids(None, 0))
        ids = (c_int32 * count)()
        count = min(count, checked(library().hvd_process_set_ids(ids, count)))
        existing = set(ids[:count])
        with self._lock:
            self._left &= existing
            candidates = existing - self._left
        ranks = (c_int32 * len(members))()
        for each in sorted(candidates):  # one that has been removed meanwhile has no ranks
            if library().hvd_process_set_ranks(each, ranks, len(members)) == len(members) and tuple(ranks) == members:
                return each
        return None


def _form(members: tuple[int, ...], seconds: float) -> int:
    handle = Handle()
    code = library().hvd_form_process_set((c_int32 * len(members))(*members), len(members), byref(handle))
    if code != Code.OK:
        raise error_of(code)
    end = time.monotonic() + seconds
    try:
        code = Code.TIMED_OUT
        while code == Code.TIMED_OUT:
            left = end - time.monotonic()
            if left <= 0:
                raise TimeoutError(
                    f"Timed out waiting {seconds * 1000:.0f}ms for a group of the ranks {list(members)}: not all of "
                    "them have created it"
                )
            code = library().hvd_wait(handle, min(_SLICE, left))
        if code != Code.OK:
            raise error_of(code)
        return checked(library().hvd_result_value(handle))
    finally:
        library().hvd_release(handle)
