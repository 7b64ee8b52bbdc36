"""SIGTERM as a notice: this process will be taken away, so it finishes its step, lets the others know, and leaves.

The launcher is notified at once; it announces a removed slot, the ranks agree on it at their next commit, and this
process gets no place in the next world. After HOROVOD_PREEMPTION_GRACE_SECONDS it ends even if it never gets there.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType

from horovod._native import elastic
from horovod.common.exceptions import HorovodInternalError

DEFAULT_GRACE_SECONDS = 30.0
_OUT_OF_GRACE = 128 + signal.SIGTERM


def grace_seconds() -> float:
    """The time between the notice and the end, at most."""
    text = os.environ.get("HOROVOD_PREEMPTION_GRACE_SECONDS", str(DEFAULT_GRACE_SECONDS))
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise ValueError(f'HOROVOD_PREEMPTION_GRACE_SECONDS is "{text}": expected a number of seconds, 0 or more')
    return seconds


def tell_launcher(reason: str) -> bool:
    """Announce that this process is leaving; False if the launcher is gone, and the job with it."""
    try:
        elastic.leave(reason)
    except HorovodInternalError:
        return False
    return True


class Preemption:
    """Handles SIGTERM while entered. Created and entered in the main thread.

    The signal's number comes through a pipe to a thread of its own: the main thread may be waiting in a collective,
    where Python runs no handlers.
    """

    def __init__(self, grace: float, notify: Callable[[str], bool] = tell_launcher) -> None:
        self._grace = grace
        self._notify = notify
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._wait, name="hvd-preemption", daemon=True)

    @staticmethod
    @contextlib.contextmanager
    def watch() -> Iterator[None]:
        """Watch for notices in elastic jobs, unless the script handles SIGTERM itself."""
        ours = elastic.is_worker() and threading.current_thread() is threading.main_thread()
        if not ours or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
            yield
            return
        with Preemption(grace_seconds()):
            yield

    def __enter__(self) -> None:
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)
        _only_in_this_process(self)
        self._before = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, _stay)
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.set_wakeup_fd(self._before)
        _only_in_this_process(None)
        self._over.set()
        os.close(self._writer)
        self._thread.join()
        os.close(self._reader)

    def forget(self) -> None:
        """In a child after fork: SIGTERM ends it, and does not count as a notice for the parent."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def _wait(self) -> None:
        while numbers := os.read(self._reader, 16):
            if signal.SIGTERM in numbers:
                if not self._notify("it was sent SIGTERM"):
                    os._exit(_OUT_OF_GRACE)  # the launcher does not know, so it will not end this process
                if not self._over.wait(self._grace):
                    print(f"no commit within {self._grace:g} s after SIGTERM: ending", file=sys.stderr, flush=True)
                    os._exit(_OUT_OF_GRACE)
                return


_current: Preemption | None = None


def _only_in_this_process(preemption: Preemption | None) -> None:
    global _current
    _current = preemption


def _after_fork() -> None:
    if _current is not None:
        _current.forget()


os.register_at_fork(after_in_child=_after_fork)


def _stay(_number: int, _frame: FrameType | None) -> None:
    """The signal handler."""
