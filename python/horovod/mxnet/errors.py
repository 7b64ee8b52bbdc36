"""The exception of a failed collective, as MXNet raises it where its result is read."""

from __future__ import annotations

from mxnet.base import MXNetError, register_error

from horovod._native.exceptions import HorovodInternalError, Origin
from horovod._native.library import Felt, world_failure


class CollectiveError(HorovodInternalError, MXNetError):  # type: ignore[misc]
    """A collective failed. An MXNetError for scripts of MXNet, a HorovodInternalError for elastic training."""

    def __init__(self, text: str = "", origin: Origin | None = None) -> None:
        origin = origin or world_failure()
        if origin is not None and not origin.is_own:
            Felt.origin = origin
        super().__init__(text, origin=origin)


# MXNet creates exceptions from texts: the first word is the class, as written by src/adapters/mxnet/call.cc.
register_error("HorovodInternalError", CollectiveError)
