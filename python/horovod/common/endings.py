"""Why this process ends: reported to the other ranks and the launcher, so both can name the rank that failed.

An uncaught exception is found in `sys.last_value` when the program ends, because any code may replace `sys.excepthook`.
The hook installed here only prints: if a rank fails because of another one, it omits the frames inside Horovod.

Thread rule: `install` and `report` run in the main thread; other threads record their own exceptions.
"""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import functools
import os
import site
import socket
import sys
import sysconfig
import threading
import time
import traceback
from ctypes import byref, sizeof
from pathlib import Path
from types import TracebackType
from typing import Any

from horovod._native.abi import Failure, FailureKind
from horovod._native.library import Felt, library, world_failure
from horovod.common.exceptions import HorovodInternalError, Origin

_MOST_CHARACTERS = 1000  # of an exception's message
_LONGEST_CHAIN = 20
_PATIENCE = 3.0  # seconds
_LOOK_AGAIN = 0.01


class _Ending:
    pid = os.getpid()  # of the process that is the rank; forked children are not
    reported = False
    caught: BaseException | None = None  # the exception that ends this process although it was caught
    in_thread: tuple[BaseException, str] | None = None  # the last exception that ended a thread, and the thread's name


@functools.cache
def install() -> None:
    """Report the end of this process, and shorten tracebacks that only follow from another rank's failure."""
    _chain_excepthook()
    _chain_thread_hook()
    _show_crashes()
    with contextlib.suppress(ImportError):  # the import of its user reports it
        # opens the pipe to the launcher, so that programs executed by this one do not inherit it
        library().hvd_is_initialized()
    atexit.register(report)  # for processes that end before they are in a world


def begin_world() -> None:
    """A world has formed: failures of the previous one are obsolete, and this process is now a rank."""
    Felt.origin = None
    if _Ending.pid != os.getpid():
        _Ending.pid, _Ending.reported = os.getpid(), False


def note(error: BaseException) -> None:
    """This exception ends the process, although the interpreter does not see it."""
    _Ending.caught = error


def cause_of(error: BaseException) -> Origin | None:
    """The other rank's failure that this exception follows from; None: it is this process's own."""
    seen = 0
    link: BaseException | None = error
    while link is not None and seen < _LONGEST_CHAIN:
        if isinstance(link, HorovodInternalError):
            origin = link.origin or world_failure()
            return None if origin is None or origin.is_own else origin
        link, seen = link.__cause__ or (None if link.__suppress_context__ else link.__context__), seen + 1
    if type(error).__module__ == "tensorflow.python.framework.errors_impl":  # the errors of our operations there
        origin = world_failure()
        return None if origin is None or origin.is_own else origin
    return None


def report() -> None:
    """Report why this process ends. Runs once, before the shutdown that notifies the other ranks."""
    if _Ending.reported or os.getpid() != _Ending.pid:
        return
    _Ending.reported = True
    with contextlib.suppress(Exception):  # reporting must not make a program fail
        library().hvd_report_end(byref(_failure()))


def uncaught() -> BaseException | None:
    """The exception that ends this process; None: there is none."""
    error: BaseException | None = _Ending.caught or getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    return error


def let_the_cause_end_first() -> None:
    """Give the rank that failed a moment to end before this one, which ends because of it.

    mpirun and similar programs name the process that ended first. horovodrun has reports of all ranks instead.
    """
    error = uncaught()
    origin = Felt.origin if error is None else cause_of(error)
    if origin is None or origin.kind in ("silent", "deadline") or os.environ.get("_HOROVOD_REPORT"):
        return
    is_here = origin.host in (os.environ.get("HOROVOD_HOSTNAME"), socket.gethostname())
    end = time.monotonic() + _PATIENCE
    while time.monotonic() < end and (not is_here or _lives(origin.pid)):
        time.sleep(_LOOK_AGAIN)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _failure() -> Failure:
    error = uncaught()
    where = ""
    if error is None and _Ending.in_thread is not None:
        error, where = _Ending.in_thread[0], f" (in thread {_Ending.in_thread[1]})"
    if isinstance(error, SystemExit):
        error = None
    origin = Felt.origin if error is None else cause_of(error)
    if origin is not None:
        return _other_failure(origin)
    kind = FailureKind.FAILURE_EXIT if error is None else FailureKind.FAILURE_EXCEPTION
    return Failure(
        struct_size=sizeof(Failure),
        kind=kind,
        rank=-1,
        is_own=1,
        type=_type_name(error).encode() if error is not None else b"",
        message=(_message(error) + where).encode(errors="replace") if error is not None else b"",
    )


def _other_failure(origin: Origin) -> Failure:
    kind, _, message = origin.exception.partition(": ")
    return Failure(
        struct_size=sizeof(Failure),
        kind=FailureKind[f"FAILURE_{origin.kind.upper()}"],
        rank=origin.rank,
        pid=origin.pid,
        host=origin.host.encode(),
        type=kind.encode(errors="replace"),
        message=message.encode(errors="replace"),
    )


def _type_name(error: BaseException) -> str:
    """As tracebacks show it."""
    kind = type(error)
    outside = kind.__module__ not in ("builtins", "__main__")
    return f"{kind.__module__}.{kind.__qualname__}" if outside else kind.__qualname__


def _message(error: BaseException) -> str:
    """In one line."""
    try:
        text = str(error)
    except Exception:
        text = "<exception str() failed>"
    return " ".join(text.split())[:_MOST_CHARACTERS]


# ---- printing ----


def _show_crashes() -> None:
    """Print Python stacks if native code crashes. HOROVOD_CRASH_STACKS=0 switches it off."""
    if faulthandler.is_enabled() or os.environ.get("HOROVOD_CRASH_STACKS", "1") == "0":
        return
    with contextlib.suppress(Exception):  # stderr may be closed, or not a file
        faulthandler.enable(file=sys.stderr, all_threads=True)


def _chain_excepthook() -> None:
    previous = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> Any:
        text = ""
        if previous is sys.__excepthook__:
            with contextlib.suppress(Exception):
                text = short_traceback(error, trace)
        if not text or sys.stderr is None:
            return previous(kind, error, trace)
        sys.stderr.write(text)
        return sys.stderr.flush()

    sys.excepthook = hook


def _chain_thread_hook() -> None:
    previous = threading.excepthook

    def hook(args: threading.ExceptHookArgs) -> Any:
        if args.exc_value is not None and not isinstance(args.exc_value, SystemExit):
            _Ending.in_thread = (args.exc_value, args.thread.name if args.thread is not None else "")
        return previous(args)

    threading.excepthook = hook


def _wants_everything() -> bool:
    return os.environ.get("HOROVOD_LOG_LEVEL", "").lower() in ("trace", "debug")


def short_traceback(error: BaseException, trace: TracebackType | None) -> str:
    """The user's last frame and the error, if it only follows from another rank's failure; else None."""
    if _wants_everything():
        return ""
    alone = error.__cause__ is None and (error.__context__ is None or error.__suppress_context__)
    if not isinstance(error, HorovodInternalError) or not alone or cause_of(error) is None:
        return ""
    frames = traceback.extract_tb(trace)
    shown = next((frame for frame in reversed(frames) if _is_users(frame.filename)), frames[0] if frames else None)
    if shown is None or len(frames) < 3:
        return ""
    lines = [
        "Traceback (most recent call last):\n",
        *traceback.format_list([shown]),
        f"  [{len(frames) - 1} other frames are omitted; HOROVOD_LOG_LEVEL=debug shows them]\n",
        *traceback.format_exception_only(type(error), error),
    ]
    return "".join(lines)


@functools.cache
def _library_folders() -> tuple[str, ...]:
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    folders = {*map(sysconfig.get_path, names), *site.getsitepackages(), str(Path(__file__).parents[1])}
    return tuple(f"{folder}{os.sep}" for folder in folders)


def _is_users(filename: str) -> bool:
    """Whether a file is part of the program, not of a package or of Python itself."""
    installed = {"site-packages", "dist-packages"} & set(Path(filename).parts)  # also of another environment
    return not installed and not filename.startswith((*_library_folders(), "<frozen"))
