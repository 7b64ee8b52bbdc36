"""Threads that wait for an operation when the program ends.

`shutdown` fails what is pending, and a daemon thread that waited for it inside TensorFlow then comes back to Python. If
Python is being taken down at that moment, it ends the thread by unwinding its stack, and C++ ends the process instead:
"FATAL: exception not rethrown". So such threads are given time to come back before.
"""

from __future__ import annotations

import sys
import threading
import time
from types import FrameType

_PATIENCE = 5.0  # seconds, for all of them: one may never end
_LOOK_AGAIN = 0.005


def let_threads_return() -> None:
    """After `shutdown`. Those that are not daemons have ended by now: Python waits for them before."""
    end = time.monotonic() + _PATIENCE
    while _threads_inside() and time.monotonic() < end:
        time.sleep(_LOOK_AGAIN)


def _threads_inside() -> bool:
    frames = sys._current_frames()
    frames.pop(threading.get_ident(), None)
    return any(_is_inside(frame) for frame in frames.values())


def _is_inside(frame: FrameType) -> bool:
    """Whether it waits in C++ for TensorFlow, or for an operation of ours that is written in Python."""
    if _package(frame) in ("tensorflow", "keras", "tf_keras"):
        return True
    caller: FrameType | None = frame
    while caller is not None and not _module(caller).startswith("horovod.tensorflow."):
        caller = caller.f_back
    return caller is not None


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def _package(frame: FrameType) -> str:
    return _module(frame).partition(".")[0]
