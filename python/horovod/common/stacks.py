"""Python stacks of this process for its launcher, which asks for them with a signal.

The handler is that of the standard library's faulthandler: it works while another thread holds the interpreter's lock,
and writes to a file that only the launcher reads.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import functools
import signal

from horovod._native.library import library

_SIGNAL_AFTER_FIRST = 11  # of the real-time signals; nothing else is known to use it


@functools.cache  # once: faulthandler would not replace what the second call puts there
def install() -> None:
    """Write the stacks of all threads when the launcher asks, unless the program uses the signal itself."""
    descriptor = library().hvd_stacks_descriptor()
    if descriptor < 0:
        return
    number = int(signal.SIGRTMIN) + _SIGNAL_AFTER_FIRST
    if signal.getsignal(number) not in (signal.SIG_DFL, signal.SIG_IGN):
        return
    # What faulthandler restores when the interpreter ends. Otherwise a late signal would kill the process.
    ctypes.CDLL(None).signal(number, ctypes.c_void_p(int(signal.SIG_IGN)))
    with contextlib.suppress(ValueError, OSError, RuntimeError):
        faulthandler.register(number, file=descriptor, all_threads=True, chain=False)
        library().hvd_set_stacks_signal(number)
