"""What a process has in use, and whether that grows."""

from __future__ import annotations

import ctypes
import gc
import itertools
import os
import statistics
from typing import NamedTuple

PARTS = 4
LEAST = 24  # samples that say something
MEGABYTE = 1 << 20


class _Mallinfo(ctypes.Structure):
    """What mallinfo2 returns; in use are `uordblks` bytes, and `hblkhd` in mappings of their own."""

    _names = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"
    _fields_ = tuple((name, ctypes.c_size_t) for name in _names.split())


def _allocated() -> int:
    function = ctypes.CDLL(None).mallinfo2
    function.restype = _Mallinfo
    told = function()
    return int(told.uordblks + told.hblkhd)


class Resources(NamedTuple):
    descriptors: int
    threads: int
    allocated: int  # what malloc has given out
    resident: int  # with what lies free between, which grows for long


def now() -> Resources:
    """Of this process."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    threads = len(os.listdir("/proc/self/task"))
    with open("/proc/self/status") as lines:  # not the pages of libraries, which come with their first use
        resident = sum(int(line.split()[1]) << 10 for line in lines if line.startswith(("RssAnon", "RssShmem")))
    return Resources(len(os.listdir("/proc/self/fd")), threads, _allocated(), resident)


def growth(used: list[Resources]) -> str:
    """What grows, in words, or nothing. A leak is what grows in every part of a run."""
    if len(used) < LEAST:
        return ""
    length = len(used) // PARTS
    parts = [used[start : start + length] for start in range(0, length * PARTS, length)]
    for name, least in (("descriptors", 1), ("threads", 1), ("allocated", MEGABYTE), ("resident", 20 * MEGABYTE)):
        middle = [statistics.median(getattr(each, name) for each in part) for part in parts]
        if all(later - earlier >= least for earlier, later in itertools.pairwise(middle)):
            return f"{name} grow: {', '.join(f'{each:,.0f}' for each in middle)} in four parts of a run"
    return ""
