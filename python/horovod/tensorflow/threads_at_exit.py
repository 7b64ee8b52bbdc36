"""Threads that wait for an operation when the program ends.

`shutdown` fails what is pending, and a daemon thread that waited for it inside TensorFlow then comes back to Python. If
Python is being taken down at that moment, it ends the thread by unwinding its stack, and C++ ends the process instead:
"FATAL: exception not rethrown". So such threads are given a moment to come back before.
"""

from __future__ import annotations

import threading
import time

_PATIENCE = 1.0  # seconds, for all of them: others may well go on for ever


def let_threads_return() -> None:
    """After `shutdown`."""
    end = time.monotonic() + _PATIENCE
    for thread in threading.enumerate():
        if thread.daemon and thread is not threading.current_thread():
            thread.join(max(0.0, end - time.monotonic()))
