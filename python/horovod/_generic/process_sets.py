"""Process sets: groups of ranks that run collectives among themselves. Scripts find them in horovod.common."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from ctypes import c_int32
from typing import Any

from horovod._native import mpi
from horovod._native.abi import WORLD_SET, Code
from horovod._native.library import checked, internal_error, library

_registered: weakref.WeakSet[ProcessSet] = weakref.WeakSet()
_listeners: list[weakref.WeakMethod[Callable[[], None]]] = []


class ProcessSet:
    """A group of ranks; usable in collectives once `hvd.init()` or `hvd.add_process_set()` registered it."""

    __module__ = "horovod.common.process_sets"  # where scripts find it, and pickle too
    process_set_id: int | None = None
    ranks: list[int] | None = None
    mpi_comm: Any = None

    def __init__(self, ranks_or_comm: Any) -> None:
        """Take a sequence of ranks, or a communicator of mpi4py, whose ranks are known after `hvd.init()`."""
        if mpi.is_communicator(ranks_or_comm, "a process set is created from"):
            self.mpi_comm = ranks_or_comm
            return
        ranks = list(ranks_or_comm)
        if not all(isinstance(rank, int) for rank in ranks):
            raise ValueError(f"the ranks of a process set must be of type int: {ranks}")
        self.ranks = sorted(ranks)

    def size(self) -> int | None:
        """Return the number of ranks in the set, or None if it is not registered."""
        if self.process_set_id is None:
            return None
        return checked(library().hvd_process_set_size(self.process_set_id))

    def rank(self) -> int | None:
        """Return this process's rank in the set, or None if the set is not registered.

        ValueError if this process is not a member.
        """
        if self.process_set_id is None:
            return None
        return checked(library().hvd_process_set_rank(self.process_set_id))

    def included(self) -> bool | None:
        """Return whether this process is a member, or None while the members are not known."""
        if self.ranks is None:
            return None
        return checked(library().hvd_rank()) in self.ranks

    def __str__(self) -> str:
        return f"ProcessSet(process_set_id={self.process_set_id}, ranks={self.ranks}, mpi_comm={self.mpi_comm})"

    def _bind(self, process_set_id: int) -> None:
        self.process_set_id = process_set_id
        self.ranks = ranks_of(process_set_id)
        _registered.add(self)

    def _unbind(self) -> None:
        self.process_set_id = None
        _registered.discard(self)
        for listener in list(_listeners):
            call = listener()
            if call is not None:
                call()


def when_unbound(call: Callable[[], None]) -> None:
    """Call this bound method whenever a set has lost its id, while its object exists.

    Ids are reused: a stored id must be dropped before it refers to another set.
    """
    _listeners.append(weakref.WeakMethod(call, _listeners.remove))


def _world() -> ProcessSet:
    world = ProcessSet([])
    world.process_set_id, world.ranks = WORLD_SET, None
    return world


global_process_set = _world()


def ranks_of(process_set_id: int) -> list[int]:
    """The sorted ranks of a registered set."""
    count = checked(library().hvd_process_set_ranks(process_set_id, None, 0))
    ranks = (c_int32 * count)()
    checked(library().hvd_process_set_ranks(process_set_id, ranks, count))
    return list(ranks)


def with_ranks(
    process_sets: Sequence[ProcessSet], world: Any, is_new: bool
) -> tuple[list[ProcessSet], list[tuple[int, ...]]]:
    """The sets of this process, with their ranks, and the groups of all communicators among them.

    A communicator of `Split` has several groups, one per process. Collective over the world if it is new.
    """
    kept: list[ProcessSet] = []
    found: list[tuple[int, ...]] = []
    for process_set in process_sets:
        if process_set.mpi_comm is not None:
            if world is None:
                raise NotImplementedError("a process set of an MPI communicator needs an MPI communicator as comm, too")
            process_set.ranks = mpi.ranks_of(process_set.mpi_comm, world)
            if is_new:
                found += mpi.groups(process_set.mpi_comm, world)
            elif process_set.ranks is not None:
                found.append(tuple(process_set.ranks))
        if process_set.ranks is not None:
            kept.append(process_set)
    return kept, found


def bind_static(process_sets: Sequence[ProcessSet]) -> None:
    """Give the sets passed to `init` their ids; KeyError for a set that was not registered by the first `init`."""
    global_process_set.ranks = ranks_of(WORLD_SET)
    count = checked(library().hvd_process_set_ids(None, 0))
    ids = (c_int32 * count)()
    checked(library().hvd_process_set_ids(ids, count))
    known = {tuple(ranks_of(process_set_id)): process_set_id for process_set_id in ids}
    for process_set in process_sets:
        process_set._bind(known[tuple(process_set.ranks or ())])


def unbind_all() -> None:
    """Forget all ids except the world's: they are valid only in the world that assigned them."""
    for process_set in list(_registered):
        process_set._unbind()


def add_process_set(process_set: ProcessSet | Sequence[int]) -> ProcessSet:
    """Register a set on all ranks and return it. Collective over the world, not only over its members.

    Needs HOROVOD_DYNAMIC_PROCESS_SETS=1, as set by `hvd.init(process_sets="dynamic")`.
    """
    if not isinstance(process_set, ProcessSet):
        process_set = ProcessSet(process_set)
    if process_set.mpi_comm is not None and process_set.ranks is None:
        raise NotImplementedError("process sets of MPI communicators are registered by hvd.init() only")
    ranks = process_set.ranks
    if ranks is None:
        raise ValueError("the process set has no ranks")
    process_set._bind(_changed(library().hvd_add_process_set((c_int32 * len(ranks))(*ranks), len(ranks))))
    return process_set


def remove_process_set(process_set: ProcessSet) -> bool:
    """Remove a set on all ranks. Collective over the world; False for the world's set and unregistered ones.

    The object can be added again; ids are reused, oldest first.
    """
    if process_set.process_set_id in (None, WORLD_SET):
        return False
    if not _changed(library().hvd_remove_process_set(process_set.process_set_id)):
        return False
    process_set._unbind()
    return True


def _changed(value: int) -> int:
    if value == -Code.PEER_LOST:
        raise internal_error()
    return checked(value)
