"""Python stacks of this process for its launcher, which asks for them with a signal.

The handler is that of the standard library's faulthandler: it works while another thread holds the interpreter's lock,
and writes to a file that only the launcher reads.
"""

from __future__ import annotations

import contextlib
import faulthandler
import signal

from horovod._native.library import library

_SIGNAL_AFTER_FIRST = 11  # of the real-time signals; nothing else is known to use it


def install() -> None:
    """Write all threads' stacks when the launcher asks. Without a launcher, or if a program uses the signal: do nothing."""
    descriptor = library().hvd_stacks_descriptor()
    if descriptor < 0:
        return
    number = int(signal.SIGRTMIN) + _SIGNAL_AFTER_FIRST
    with contextlib.suppress(ValueError, OSError):  # signals can be asked for in the main thread only
        if signal.getsignal(number) is not signal.SIG_DFL:
            return
    with contextlib.suppress(ValueError, OSError, RuntimeError):
        faulthandler.register(number, file=descriptor, all_threads=True, chain=False)
        library().hvd_set_stacks_signal(number)
