"""Finds and loads libhorovod.so, and turns its codes into exceptions. The library is loaded on first use.

Thread rule: any thread, as for the C ABI.
"""

from __future__ import annotations

import ctypes
import functools
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from horovod._native.abi import ABI_VERSION, PROTOTYPES, Code, Failure, FailureKind
from horovod._native.exceptions import HorovodInternalError, Origin

NOT_INITIALIZED = "Horovod has not been initialized; use hvd.init()."


class Library:
    """Every function of the C ABI as an attribute, ready to call."""

    def __init__(self, path: str) -> None:
        try:
            releasing_gil, keeping_gil = ctypes.CDLL(path), ctypes.PyDLL(path)
        except OSError as error:
            raise ImportError(f"cannot load Horovod's library: {error}; run make, or reinstall horovod") from error
        for name, prototype in PROTOTYPES.items():
            try:
                function = getattr(releasing_gil if prototype.blocks else keeping_gil, name)
            except AttributeError as error:
                raise ImportError(f"{path} has no {name}: reinstall horovod") from error
            function.restype = prototype.result
            function.argtypes = prototype.arguments
            setattr(self, name, function)
        major, wanted = self.hvd_abi_version() >> 16, ABI_VERSION >> 16
        if major != wanted:
            raise ImportError(
                f"{path} has version {major} of the binary interface, this package needs {wanted}: reinstall horovod"
            )

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...


def library_path() -> str:
    """Where the library is: HOROVOD_LIBRARY, or in this package."""
    return os.environ.get("HOROVOD_LIBRARY") or str(Path(__file__).parents[1] / "lib" / "libhorovod.so")


@functools.cache
def library() -> Library:
    """The loaded library; ImportError when it is missing or of another binary interface."""
    return Library(library_path())


def last_error() -> str:
    """The text of the calling thread's last failure."""
    text: bytes = library().hvd_last_error()
    return text.decode(errors="replace")


def last_failure() -> Origin | None:
    """The origin of the calling thread's last failure, if known."""
    failure = Failure(struct_size=ctypes.sizeof(Failure))
    return _origin(failure) if library().hvd_last_failure(ctypes.byref(failure)) else None


def world_failure() -> Origin | None:
    """The origin of the failure of the current world, or the last one; None: it has not failed."""
    failure = Failure(struct_size=ctypes.sizeof(Failure))
    return _origin(failure) if library().hvd_world_failure(ctypes.byref(failure)) else None


def _origin(failure: Failure) -> Origin:
    host, kind, text = (part.decode(errors="replace") for part in (failure.host, failure.type, failure.message))
    return Origin(
        rank=failure.rank,
        host=host,
        pid=failure.pid,
        kind=FailureKind(failure.kind).name.removeprefix("FAILURE_").lower(),
        exception=f"{kind}: {text}" if kind and text else kind,
        is_own=bool(failure.is_own),
    )


class Felt:
    """The last failure of another rank that an operation of this process has raised; endings.py asks for it."""

    origin: Origin | None = None


def internal_error() -> HorovodInternalError:
    """The calling thread's last failure as an exception."""
    origin = last_failure()
    if origin is not None and not origin.is_own:
        Felt.origin = origin
    return HorovodInternalError(last_error(), origin=origin)


def raise_error(code: int) -> NoReturn:
    """Raise the exception for the `code` of a failed operation, with the library's text."""
    raise ValueError(last_error()) if code == Code.INVALID_ARGUMENT else internal_error()


def checked(value: int) -> int:
    """The value of a query function; ValueError for the negative codes that mean errors."""
    if value < 0:
        raise ValueError(NOT_INITIALIZED if value == -Code.NOT_INITIALIZED else last_error())
    return value
