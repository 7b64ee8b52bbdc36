"""MPI: whether it is available, the path of its plugin, and communicators of mpi4py.

The plugin connects to MPI; it is compiled on the machine, by `horovodrun --build-mpi`. mpi4py is imported only
when the script has given one of its communicators.
"""

from __future__ import annotations

import os
import select
import shlex
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterable, Sequence
from ctypes import c_int32
from pathlib import Path
from typing import Any

from horovod._native.abi import Code
from horovod._native.library import last_error, library, library_path
from horovod._native.program import find

BUILD_SECONDS = 300
_ONE_HOST = 1  # of hvd_mpi_expected
_NAMES = ("HOROVOD_CONTROLLER", "HOROVOD_CPU_OPERATIONS")


def is_wanted() -> bool:
    """Whether the environment asks for MPI."""
    return any(os.environ.get(name, "").lower() == "mpi" for name in _NAMES)


def built() -> bool:
    """Whether MPI can be used: its plugin exists, or can be compiled with mpicc."""
    if library().hvd_backend_built(b"mpi"):
        return True
    named = os.environ.get("HOROVOD_MPI_LIBRARY")
    if named:
        return Path(named).is_file()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "horovod" / "mpi"
    return any(cache.glob("*/libhorovod_mpi.so")) or _mpicc() is not None


def _mpicc() -> str | None:
    home = os.environ.get("HOROVOD_MPI_HOME")
    has_source = (Path(library_path()).parent / "mpi" / "hvd_mpi_shim.c").is_file()
    return shutil.which("mpicc", path=f"{home}/bin" if home else None) if has_source else None


def is_communicator(thing: Any, purpose: str) -> bool:
    """Whether it is a communicator of mpi4py. If it is not even a sequence: ValueError that begins with `purpose`."""
    if thing is None or isinstance(thing, Iterable):
        return False
    if not built():
        raise ValueError(
            f"{purpose} a sequence of ranks, not {thing!r}; or a communicator of MPI, which is missing: install it "
            "(Debian: openmpi-bin libopenmpi-dev, or mpich libmpich-dev; conda: openmpi, or mpich)"
        )
    mpi4py = _mpi4py()
    if mpi4py is None or not isinstance(thing, mpi4py.Comm):
        raise ValueError(f"{purpose} a sequence of ranks or a communicator of mpi4py, not {thing!r}")
    return True


def use(comm: Any = None, ranks: Sequence[int] = ()) -> None:
    """Take the next world from MPI: that of the communicator, or of these ranks of MPI_COMM_WORLD, or all of it."""
    _load()
    if comm is not None and comm == _required().COMM_NULL:
        raise ValueError("comm is MPI.COMM_NULL: this process is not in its world")
    address = None if comm is None else _required()._addressof(comm)
    _check(library().hvd_mpi_use(address, (c_int32 * len(ranks))(*ranks), len(ranks)))


def offer(ranks: Sequence[int]) -> bool:
    """Use MPI for the next world if mpirun, mpiexec or srun --mpi started it; returns whether this rank can.

    On one host MPI is used only if all ranks can use it; several hosts have no other rendezvous.
    """
    hosts = library().hvd_mpi_expected()
    if not hosts:
        return False
    obstacle = ""
    try:
        _check_connection()
        _load()
        _compare_launcher()
    except ValueError as error:
        obstacle = str(error)
    numbers = (c_int32 * len(ranks))(*ranks)
    if hosts == _ONE_HOST:
        _check(library().hvd_mpi_offer(os.fsencode(obstacle), numbers, len(ranks)))
    elif obstacle:
        raise ValueError(
            f"the ranks of several hosts that mpirun or srun has started meet over MPI, but {obstacle}\n"
            "If MPI is not available, start the job with horovodrun, or export the address of the rendezvous "
            "(HOROVOD_GLOO_RENDEZVOUS_ADDR, HOROVOD_GLOO_RENDEZVOUS_PORT and _HOROVOD_SECRET_KEY)"
        )
    else:
        _check(library().hvd_mpi_use(None, numbers, len(ranks)))
    return not obstacle


def obstacle() -> str:
    """Why the current world does not use MPI although an MPI started it; otherwise None."""
    return os.fsdecode(library().hvd_mpi_obstacle())


def ranks_of(comm: Any, world: Any) -> list[int] | None:
    """The members of a communicator, as ranks of the world; None if this process has none."""
    mpi4py = _required()
    if comm == mpi4py.COMM_NULL:
        return None
    group = comm.Get_group()
    ranks = mpi4py.Group.Translate_ranks(group, list(range(group.Get_size())), world.Get_group())
    if mpi4py.UNDEFINED in ranks:
        raise ValueError("the communicator of a process set has processes that are not in the comm of hvd.init()")
    return sorted(ranks)


def groups(comm: Any, world: Any) -> list[tuple[int, ...]]:
    """Every group that the processes have in this communicator, which is collective over the world."""
    found = [tuple(ranks) for ranks in world.allgather(ranks_of(comm, world)) if ranks is not None]
    return list(dict.fromkeys(found))


def _load() -> None:
    if not library().hvd_backend_built(b"mpi"):
        _check(library().hvd_mpi_load(os.fsencode(_plugin())))
    _compare_versions()


def _plugin() -> str:
    """The path of the plugin: HOROVOD_MPI_LIBRARY, or the one that horovodrun has compiled, now or earlier."""
    named = os.environ.get("HOROVOD_MPI_LIBRARY")
    if named:
        return named
    try:
        command = [find(), "--build-mpi"]
        result = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=BUILD_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ValueError(f"MPI cannot be used: {error}") from None
    lines = result.stdout.splitlines()
    if result.returncode != 0 or not lines:
        said = result.stderr.strip().removeprefix("horovodrun: ")
        raise ValueError(f"MPI cannot be used: {said or f'{shlex.join(command)} failed'}")
    return lines[-1]


def _check_connection() -> None:
    """mpirun of MPICH and srun --mpi=pmi2 communicate with MPI through a descriptor; without it, MPI exits."""
    number = os.environ.get("PMI_FD", "")
    if not number.isdecimal() or library().hvd_backend_built(b"mpi"):
        return
    try:
        is_socket = stat.S_ISSOCK(os.fstat(int(number)).st_mode)
    except OSError:
        is_socket = False
    if not is_socket:
        raise ValueError(f"MPI cannot be used: a program between mpirun and this one has closed PMI_FD={number}")
    poll = select.poll()
    poll.register(int(number), 0)
    if poll.poll(0):
        raise ValueError(f"MPI cannot be used: another program of this rank has used PMI_FD={number}, and MPI, before")


def _compare_launcher() -> None:
    """Under the mpirun of another MPI, MPI_Init ends the process or creates a world of one."""
    version = library().hvd_mpi_version().decode()
    is_open = version.startswith(("Open MPI", "IBM Spectrum MPI"))
    by_open = bool(os.environ.get("OMPI_COMM_WORLD_RANK")) or not os.environ.get("PMI_RANK")
    if is_open != by_open:
        raise ValueError(
            f"MPI cannot be used: the plugin is for {_short(_words(version))}, but this process was started for "
            f"{'Open MPI' if by_open else 'MPICH'}. Choose that MPI with HOROVOD_MPI_HOME; or start the job with the "
            "mpirun of the plugin's MPI, or with srun --mpi=pmix for Open MPI and --mpi=pmi2 for MPICH"
        )


def _compare_versions() -> None:
    """Two MPIs in one process are incompatible: handles of one would crash the other."""
    mpi4py = _mpi4py() if "mpi4py" in sys.modules else None
    if mpi4py is None:
        return
    ours, theirs = (_words(text) for text in (library().hvd_mpi_version().decode(), mpi4py.Get_library_version()))
    if ours != theirs:
        raise ValueError(
            f"mpi4py uses {_short(theirs)}, but Horovod's plugin {_short(ours)}. Choose the MPI of mpi4py for Horovod: "
            "set HOROVOD_MPI_HOME to where its bin/mpicc is, or HOROVOD_MPI_LIBRARY; or install mpi4py for the other"
        )


def _words(version: str) -> list[str]:
    return version.replace("\0", " ").split()


def _short(words: list[str]) -> str:
    return " ".join(words[:3]).rstrip(",")


def _mpi4py() -> Any:
    try:
        from mpi4py import MPI
    except ImportError:
        return None
    return MPI


def _required() -> Any:
    mpi4py = _mpi4py()
    assert mpi4py is not None  # is_communicator was true
    return mpi4py


def _check(code: int) -> None:
    if code != Code.OK:
        raise ValueError(last_error())
