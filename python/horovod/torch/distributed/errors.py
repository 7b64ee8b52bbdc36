"""What failed operations raise: exceptions that programs for torch.distributed know, and Horovod's own at once."""

from __future__ import annotations

from torch.distributed import DistBackendError, DistNetworkError

from horovod._native.abi import Code
from horovod._native.exceptions import HorovodInternalError
from horovod._native.library import internal_error, last_error


class EngineError(HorovodInternalError, DistBackendError):
    """An operation failed: ranks disagree, or the world has ended."""


class PeerLostError(HorovodInternalError, DistNetworkError):
    """A rank has died or fallen silent; the text says which, on which host."""


class TimeoutError(DistBackendError):
    """An operation was not done in the time of its group, or of its own."""


def error_of(code: int) -> Exception:
    """The calling thread's last failure of the engine, whose code was `code`."""
    if code == Code.INVALID_ARGUMENT:
        return ValueError(last_error())
    failure = internal_error()
    kind = PeerLostError if code == Code.PEER_LOST else EngineError
    return kind(str(failure), origin=failure.origin)
