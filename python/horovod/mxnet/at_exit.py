"""The exit of a program that has not waited for its last operations.

`shutdown` would fail them, here and on the ranks that still need their results. So they get some time.
"""

from __future__ import annotations

import sys

from horovod.mxnet import native

_PATIENCE = 60.0  # seconds without any operation being finished


def finish_pushed() -> None:
    """Wait for the pushed operations, unless they make no progress any more."""
    left, before = native.wait_all(0), -1
    while left not in (0, before):
        before, left = left, native.wait_all(_PATIENCE)
    if left:
        print(
            f"horovod: {left} operations were started and not finished for {_PATIENCE:.0f} s; they fail now",
            file=sys.stderr,
            flush=True,
        )
