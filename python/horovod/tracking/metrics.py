"""The numbers of this rank that a Tracker logs beside step times.

Thread rule: any thread.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import psutil

from horovod.common.basics import HorovodBasics

# Of hvd.metrics(): those that show in a plot over steps why they became slow.
_COUNTED = ("wait_seconds", "queue_depth", "cache_misses", "stalls", "recovered_failures")


def flatten(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """The finite numbers of nested mappings, with names joined by slashes; everything else is left out."""
    for name, value in values.items():
        path = f"{prefix}/{name}" if prefix else str(name)
        if isinstance(value, Mapping):
            yield from flatten(value, path)
        elif isinstance(value, (bool, int, float)) and math.isfinite(value):
            yield path, float(value)


def job_metrics(basics: HorovodBasics) -> dict[str, float]:
    """The one place that decides which numbers of the job are logged."""
    counted = basics.metrics()  # empty with HOROVOD_OBSERVE=0
    return dict(
        flatten(
            {
                "size": basics.size(),
                "local_size": basics.local_size(),
                "resident_bytes": psutil.Process().memory_info().rss,
                **{name: counted[name] for name in _COUNTED if name in counted},
            },
            "horovod",
        )
    )
