"""Names of gradients in the negotiation: from the shapes of all variables of their optimizer, and their index.

Names of variables cannot be used: Keras numbers layers in order of creation, and a rank that loaded its model from a
file has other names than one that built it. All ranks reduce with their optimizers in the same order, so these are
numbered.

Thread rule: one optimizer at a time.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Sequence
from typing import Any

_optimizers: Counter[str] = Counter()  # that have reduced gradients of such variables


def restart() -> None:
    """Restart numbering, in a new world: workers that join it have no optimizers yet."""
    _optimizers.clear()


class GradientNames:
    """The names for one optimizer."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._chosen: dict[str, str] = {}

    def of(self, variables: Sequence[Any]) -> list[str]:
        """A name for the gradient of each variable; always the same for variables of the same shapes."""
        shapes = repr([(tuple(each.shape), str(each.dtype)) for each in variables])
        kind = f"{self._prefix}.{zlib.crc32(shapes.encode()):08x}"
        if kind not in self._chosen:
            self._chosen[kind] = f"{kind}.{_optimizers[kind]}"
            _optimizers[kind] += 1
        return [f"{self._chosen[kind]}.{place}" for place in range(len(variables))]


__all__ = ["GradientNames", "restart"]
