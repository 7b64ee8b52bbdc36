"""The reduce operations, and the older way of choosing between two of them."""

from __future__ import annotations

import warnings

from horovod._native.abi import ReduceOp

Average = int(ReduceOp.AVERAGE)
Sum = int(ReduceOp.SUM)
Adasum = int(ReduceOp.ADASUM)
Min = int(ReduceOp.MIN)
Max = int(ReduceOp.MAX)
Product = int(ReduceOp.PRODUCT)


def choose_reduce_op(op: int | None, average: bool | None) -> int:
    """The operation that the arguments `op` and `average` (deprecated) ask for; Average if neither is given."""
    if average is None:
        return Average if op is None else op
    if op is not None:
        raise ValueError("give either op or average (deprecated), not both")
    warnings.warn("average is deprecated; use op=hvd.Average or op=hvd.Sum", DeprecationWarning, stacklevel=3)
    return Average if average else Sum
