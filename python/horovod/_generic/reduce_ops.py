"""The reduce operations, and the older argument that selects one of two."""

from __future__ import annotations

import sys
import warnings

from horovod._native.abi import ReduceOp

Average = int(ReduceOp.AVERAGE)
Sum = int(ReduceOp.SUM)
Adasum = int(ReduceOp.ADASUM)
Min = int(ReduceOp.MIN)
Max = int(ReduceOp.MAX)
Product = int(ReduceOp.PRODUCT)


def choose_reduce_op(op: int | None, average: bool | None) -> int:
    """The operation selected by `op` or `average` (deprecated); Average if neither is given."""
    if average is None:
        return Average if op is None else op
    if op is not None:
        raise ValueError("give either op or average (deprecated), not both")
    warnings.warn(
        "average is deprecated; use op=hvd.Average or op=hvd.Sum", DeprecationWarning, stacklevel=_depth_of_package()
    )
    return Average if average else Sum


def _depth_of_package() -> int:
    """The stack level of the first function outside this package, as seen by the caller."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("horovod."):
        frame, level = frame.f_back, level + 1
    return level
