"""Collectives on Python objects."""

from __future__ import annotations

from typing import Any

import numpy as np

import horovod.numpy as hvd


def test_broadcast() -> None:
    for root in range(hvd.size()):
        given: dict[str, Any] = {"rank": hvd.rank(), "array": np.arange(hvd.rank() * 1000), "text": "x" * hvd.rank()}
        result = hvd.broadcast_object(given, root)
        assert (result is given) == (hvd.rank() == root)
        assert result["rank"] == root and len(result["array"]) == root * 1000 and result["text"] == "x" * root


def test_types_may_differ() -> None:
    given: Any = [1, 2] if hvd.rank() == 0 else None
    assert hvd.broadcast_object(given) == [1, 2]
    assert hvd.broadcast_object(given, name="with a name") == [1, 2]
    assert hvd.allgather_object(given) == [[1, 2]] + [None] * (hvd.size() - 1)


def test_functions_travel() -> None:
    factor = hvd.rank() + 1
    assert hvd.broadcast_object(lambda x: x * factor, hvd.size() - 1)(10) == 10 * hvd.size()


def test_allgather() -> None:
    result = hvd.allgather_object({"rank": hvd.rank(), "data": b"z" * (hvd.rank() * 5000)}, name="objects")
    assert [each["rank"] for each in result] == list(range(hvd.size()))
    assert [len(each["data"]) for each in result] == [rank * 5000 for rank in range(hvd.size())]
    assert hvd.allgather_object(None) == [None] * hvd.size()
