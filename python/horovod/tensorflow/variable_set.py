"""Identifies and names variables of TensorFlow, Keras 3 and Keras 2.

Thread rule: pure functions; a VariableSet belongs to one thread at a time.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

_UNUSUAL = re.compile(r"[^A-Za-z0-9_./-]")
_DIGITS = re.compile(r"(\d+)")


def storage(variable: Any) -> Any:
    """The TensorFlow variable with the value: Keras wraps it, and callers may pass either."""
    for attribute in ("_value", "_variable"):  # of Keras 3; of mixed precision in Keras 2
        inner = getattr(variable, attribute, None)
        if inner is not None and hasattr(inner, "assign"):
            return inner
    return variable


class VariableSet:
    """Variables by identity: they compare element by element, so that Python's sets cannot hold them."""

    def __init__(self, variables: Iterable[Any] = ()) -> None:
        self._variables: dict[int, Any] = {}  # the values keep the identities valid
        for variable in variables:
            self.add(variable)

    def add(self, variable: Any) -> None:
        """Add it, unless it is already in the set."""
        inner = storage(variable)
        self._variables[id(inner)] = inner

    def __contains__(self, variable: Any) -> bool:
        return id(storage(variable)) in self._variables

    def __iter__(self) -> Iterator[Any]:
        return iter(self._variables.values())

    def __len__(self) -> int:
        return len(self._variables)


def name_of(variable: Any) -> str:
    """The variable's own name, as far as it may be part of the name of an operation."""
    name = getattr(variable, "path", None) or getattr(variable, "name", None) or "unnamed"
    return _UNUSUAL.sub("_", str(name).partition(":")[0]).lstrip("_/.-") or "unnamed"


def names_of(variables: Sequence[Any]) -> list[str]:
    """A name for each variable. They differ; only of those with the same own name does it depend on the order."""
    taken: Counter[str] = Counter()
    names = []
    for own in map(name_of, variables):
        names.append(own if taken[own] == 0 else f"{own}.{taken[own]}")
        taken[own] += 1
    return names


def natural_order(name: str) -> list[Any]:
    """A key to sort names by, in which layer_2 comes before layer_10."""
    return [int(part) if part.isdigit() else part for part in _DIGITS.split(name)]
