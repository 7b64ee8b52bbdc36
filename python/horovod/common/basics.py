"""Starting and ending Horovod, and the ranks of this process."""

from __future__ import annotations

import atexit
import functools
import itertools
import json
import os
import threading
from collections.abc import Callable, Sequence
from ctypes import c_int32
from typing import Any

from horovod._generic import process_sets as sets
from horovod._generic.handles import handles
from horovod._generic.process_sets import ProcessSet
from horovod._native import elastic, mpi
from horovod._native.abi import Code
from horovod._native.library import NOT_INITIALIZED, checked, internal_error, last_error, library
from horovod.common import endings, stacks
from horovod.common.exceptions import WorkerRemoved

endings.install()


class HorovodBasics:
    """The functions every framework's package offers. All state is in the library, so every instance is the same.

    The arguments used to name a framework's extension; there is now one library, so they are ignored.
    """

    def __init__(self, pkg_path: str = "", *args: str) -> None:
        library()

    def init(self, comm: Any = None, process_sets: Sequence[ProcessSet] | str | None = None) -> None:
        """Form the world of all processes of the job. If already initialised, it only binds `process_sets`.

        `process_sets` is a list that is the same on all ranks, or "dynamic" to allow `add_process_set`. `comm` is a
        communicator of mpi4py, whose processes form the world; or, where MPI is the controller, a list of ranks of
        MPI_COMM_WORLD; otherwise such a list is not used. In an elastic job this process may be told that there is
        no longer a place for it: then SystemExit ends it with exit code 0.
        """
        world = comm if mpi.is_communicator(comm, "comm must be") else None
        wanted, by_communicators = sets.with_ranks(_static_sets(process_sets), world, not self.is_initialized())
        ranks_wanted = [*by_communicators, *(tuple(each.ranks or ()) for each in wanted if each.mpi_comm is None)]
        unique = dict.fromkeys(ranks_wanted)
        duplicates = len(unique) < len(ranks_wanted)
        if not self.is_initialized():
            stacks.install()
            if isinstance(process_sets, str):
                os.environ["HOROVOD_DYNAMIC_PROCESS_SETS"] = "1"
            uses_mpi = world is not None or mpi.is_wanted()
            if uses_mpi:
                mpi.use(world, () if world is not None else list(comm or ()))
            else:
                uses_mpi = mpi.offer(list(comm or ()))
            all_ranks = _world_ranks(comm if uses_mpi else None) if world is None else range(world.Get_size())
            duplicates = unique.pop(tuple(all_ranks), ()) is None or duplicates
            _form_world(list(unique))
            sets.global_process_set.mpi_comm = world
        sets.bind_static([each for each in wanted if tuple(each.ranks or ()) in unique])
        if duplicates:
            raise ValueError("two of the process sets have the same ranks, or one is equal to the world")

    def shutdown(self) -> None:
        """End communication on all ranks; pending operations fail there. `init` may be called again."""
        library().hvd_shutdown()
        sets.unbind_all()
        sets.global_process_set.mpi_comm = None

    def is_initialized(self) -> bool:
        """Return whether `init` was called, and `shutdown` was not since."""
        return bool(library().hvd_is_initialized())

    def rank(self) -> int:
        """Return this process's number in the world."""
        return checked(library().hvd_rank())

    def size(self) -> int:
        """Return the number of processes in the world."""
        return checked(library().hvd_size())

    def local_rank(self) -> int:
        """Return this process's number on its host."""
        return checked(library().hvd_local_rank())

    def local_size(self) -> int:
        """Return the number of processes on this host."""
        return checked(library().hvd_local_size())

    def cross_rank(self) -> int:
        """Return this host's number among the hosts that have a process with this local rank."""
        return checked(library().hvd_cross_rank())

    def cross_size(self) -> int:
        """Return the number of hosts that have a process with this local rank."""
        return checked(library().hvd_cross_size())

    def is_homogeneous(self) -> bool:
        """Return whether every host has the same number of processes."""
        return bool(checked(library().hvd_is_homogeneous()))

    def start_timeline(self, file_path: str, mark_cycles: bool = False) -> None:
        """Record a timeline into the file. HOROVOD_TIMELINE must have been set (to a path or DYNAMIC) at `init`."""
        if library().hvd_start_timeline(os.fsencode(file_path), int(mark_cycles)) != Code.OK:
            raise ValueError(last_error())

    def stop_timeline(self) -> None:
        """Stop recording; does nothing when already stopped."""
        if library().hvd_stop_timeline() != Code.OK:
            raise ValueError(last_error())

    def metrics(self) -> dict[str, Any]:
        """Return what this process has counted since its first `init`: operations, bytes, waits, cache hits and more.

        The page "See what a job does" explains every field. Empty before `init` and with HOROVOD_OBSERVE=0.
        """
        counted: dict[str, Any] = json.loads(library().hvd_metrics())
        return counted

    def mpi_threads_supported(self) -> bool:
        """Return whether MPI may be called from several threads; ValueError while MPI is not used."""
        if not self.mpi_enabled():
            if not self.is_initialized():
                raise ValueError(NOT_INITIALIZED)
            reason = mpi.obstacle()
            raise ValueError(f"MPI is not used: {reason}" if reason else "MPI is not used")
        return bool(library().hvd_mpi_threads_supported())

    def mpi_enabled(self) -> bool:
        """Return whether the processes of this world met over MPI, or MPI moves their data."""
        return bool(library().hvd_mpi_enabled())

    def gloo_enabled(self) -> bool:
        """Return whether the built-in transport, not MPI, moves the data of this world."""
        return bool(library().hvd_gloo_enabled())

    def mpi_built(self) -> bool:
        """Return whether MPI can be used: Horovod's plugin for it exists, or mpicc, which compiles it, does."""
        return mpi.built()

    def gloo_built(self) -> bool:
        """Return whether Horovod works without MPI: the built-in transport stands for Gloo."""
        return bool(library().hvd_backend_built(b"gloo"))

    def nccl_built(self) -> int:
        """Return the version code of NCCL, such as 21805, or 0 if it is not installed."""
        return int(library().hvd_backend_built(b"nccl"))

    def cuda_built(self) -> bool:
        """Return whether the library of the CUDA driver is installed."""
        return bool(library().hvd_backend_built(b"cuda"))

    def ddl_built(self) -> bool:
        """Return False: IBM's DDL is not supported."""
        return False

    def ccl_built(self) -> bool:
        """Return False: Intel's oneCCL is not supported."""
        return False

    def rocm_built(self) -> bool:
        """Return whether the libraries of AMD's ROCm are installed, and those of CUDA are not."""
        return bool(library().hvd_backend_built(b"rocm"))


def _static_sets(process_sets: Sequence[ProcessSet] | str | None) -> list[ProcessSet]:
    if isinstance(process_sets, str):
        if process_sets.lower() != "dynamic":
            raise ValueError(f'process_sets must be a list of ProcessSet or "dynamic", not "{process_sets}"')
        return []
    wanted = list(process_sets or ())
    if not all(isinstance(each, ProcessSet) for each in wanted):
        raise ValueError('process_sets must be a list of ProcessSet or "dynamic"')
    return wanted


def _world_ranks(some: Sequence[int] | None) -> Sequence[int]:
    """The ranks of the world about to be formed, of `some` processes or of all; the launcher tells how many.

    Unknown in elastic jobs.
    """
    if elastic.is_worker():
        return ()
    sizes = ("HOROVOD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS")
    told = next((os.environ[name] for name in sizes if os.environ.get(name)), "1")
    try:
        return range(len(some) if some else int(told))
    except ValueError:
        return ()  # the library reports the error


_forming = threading.Lock()


def _form_world(static_sets: list[tuple[int, ...]]) -> None:
    with _forming:
        is_formed = library().hvd_is_initialized
        if is_formed():
            return  # another thread has already done it
        with handles.new_world(is_formed):
            _meet(static_sets)
        endings.begin_world()
        _shut_down_at_exit()
        if elastic.is_worker():
            _publish_place()


def _meet(static_sets: list[tuple[int, ...]]) -> None:
    ranks = list(itertools.chain.from_iterable(static_sets))
    code = library().hvd_init(
        len(static_sets),
        (c_int32 * len(static_sets))(*map(len, static_sets)),
        (c_int32 * len(ranks))(*ranks),
    )
    if code == Code.REMOVED:
        raise WorkerRemoved(last_error())
    if code in (Code.INVALID_ARGUMENT, Code.PRECONDITION):
        raise ValueError(last_error())
    if code != Code.OK:
        raise internal_error()


def _publish_place() -> None:
    """Set the variables with this process's rank: in an elastic job it is known only now."""
    place = HorovodBasics()
    os.environ["HOROVOD_RANK"] = str(place.rank())
    os.environ["HOROVOD_SIZE"] = str(place.size())
    os.environ["HOROVOD_LOCAL_RANK"] = str(place.local_rank())
    os.environ["HOROVOD_LOCAL_SIZE"] = str(place.local_size())
    os.environ["HOROVOD_CROSS_RANK"] = str(place.cross_rank())
    os.environ["HOROVOD_CROSS_SIZE"] = str(place.cross_size())


_before_end: list[Callable[[], None]] = []
_after_end: list[Callable[[], None]] = []


def before_end(call: Callable[[], None]) -> None:
    """Call this when the program ends by itself, before the shutdown that belongs to it."""
    _before_end.append(call)


def after_end(call: Callable[[], None]) -> None:
    """Call this when the program ends, after the shutdown that belongs to it."""
    _after_end.append(call)


@functools.cache
def _shut_down_at_exit() -> None:
    atexit.register(_end)


def _end() -> None:
    endings.report()
    if endings.uncaught() is None and HorovodBasics().is_initialized():
        for call in _before_end:
            call()
    HorovodBasics().shutdown()
    endings.let_the_cause_end_first()
    for call in _after_end:
        call()
    library().hvd_mpi_end(int(endings.uncaught() is not None))  # MPI would wait even for ranks that fail
