"""The serial model: what each rank gives to an operation, and what it must get. NumPy, no communication.

Values are whole numbers, few enough of them that every order of adding gives the same bits. So results are compared
bit for bit; only Adasum and averages over numbers of ranks that are no power of two have a tolerance.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray
from operations import EVERY, Operation

Array = NDArray[Any]

POOL = 1 << 18
MOST = {
    "bool": 1,
    "uint8": 7,
    "int8": 3,
    "uint16": 1000,
    "int16": 1000,
    "float16": 3,
    "bfloat16": 3,
    "float32": 1 << 20,
}
MOST |= {"int32": 1 << 24, "int64": 1 << 40, "float64": 1 << 40, "complex64": 1 << 20, "complex128": 1 << 40}
TOLERANCE = {
    "float16": 2e-3,
    "bfloat16": 2e-2,
    "float32": 1e-6,
    "float64": 1e-14,
    "complex64": 1e-6,
    "complex128": 1e-14,
}
# Adasum squares the ratio of inputs to result in its rounding errors (docs/architecture.md). Short vectors of random
# signs cancel now and then, long ones do not, so short ones are cut from numbers that never cancel.
FEW = 16
ADASUM_TOLERANCE = {"float16": 4e-2, "float32": 2e-5, "float64": 1e-10}
REDUCE = {"Sum": np.add, "Average": np.add, "Min": np.minimum, "Max": np.maximum, "Product": np.multiply}


class Difference(AssertionError):
    """A result is not what the model says."""


def dtype_of(name: str) -> np.dtype[Any]:
    if name == "bfloat16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(name)


@functools.cache
def _pool(name: str, kind: str) -> Array:
    """Numbers that inputs are cut from; twice as long as the places where a cut may begin."""
    chance = np.random.default_rng(len(name))
    dtype = dtype_of(name)
    if kind == "Adasum":
        return chance.standard_normal(2 * POOL).astype(dtype)
    if kind == "few of Adasum":
        return chance.uniform(0.75, 1.25, 2 * POOL).astype(dtype)
    if kind == "Product":
        return chance.integers(1, 3, 2 * POOL).astype(dtype) if name != "bool" else chance.integers(0, 2, 2 * POOL) > 0
    least = 0 if name in ("bool", "uint8", "uint16") else -MOST[name]
    values = chance.integers(least, MOST[name] + 1, 2 * POOL)
    if dtype.kind == "c":
        return (values + 1j * chance.integers(least, MOST[name] + 1, 2 * POOL)).astype(dtype)
    return values.astype(dtype)


def prepare() -> None:
    """Make all numbers now, so that processes that are forked afterwards have them."""
    for name in EVERY:
        for kind in ("", "Product"):
            _pool(name, kind)
        if name in ADASUM_TOLERANCE:
            _pool(name, "Adasum")
            _pool(name, "few of Adasum")


def _cut(name: str, kind: str, shape: tuple[int, ...], place: int) -> Array:
    count = int(np.prod(shape, dtype=np.int64))
    if kind == "Adasum" and count < FEW:
        kind = "few of Adasum"
    pool = _pool(name, kind if kind in ("Adasum", "few of Adasum", "Product") else "")
    place %= POOL
    if place + count > len(pool):
        return np.resize(pool[place:], count).reshape(shape)
    return pool[place : place + count].reshape(shape)


def shape_of(operation: Operation, index: int, rank: int) -> tuple[int, ...]:
    """Of the tensor that a rank gives."""
    shape = operation.shapes[index]
    if operation.rows:
        shape = (operation.rows[index][operation.members.index(rank)], *shape[1:])
    if operation.odd == rank and index == len(operation.shapes) - 1:
        if operation.wrong == "length":
            shape = (shape[0] + 1, *shape[1:]) if shape else (2,)
        if operation.wrong == "dimensions":
            shape = (*shape, 1)
    return shape


def type_of(operation: Operation, index: int, rank: int) -> str:
    name = operation.dtypes[index]
    if operation.odd == rank and operation.wrong == "type" and index == len(operation.shapes) - 1:
        return "int32" if name == "float32" else "float32"
    return name


def inputs(operation: Operation, rank: int, turn: int) -> list[Array]:
    """What a rank gives; views of memory that must not be changed."""
    key = operation.key + turn * 7919
    return [
        _cut(
            type_of(operation, index, rank),
            operation.reduce,
            shape_of(operation, index, rank),
            key * 31 + rank * 1013 + index * 10007,
        )
        for index in range(len(operation.shapes))
    ]


def scaled(values: Array, factor: float) -> Array:
    """Integers are scaled in float64 and truncated, 16-bit types in float32."""
    if factor == 1.0:
        return values
    if values.dtype.kind in "iu":
        return np.trunc(values.astype(np.float64) * factor).astype(values.dtype)
    if values.dtype.itemsize == 2:
        return (values.astype(np.float32) * np.float32(factor)).astype(values.dtype)
    return np.asarray(values * values.dtype.type(factor), values.dtype)


def _reduced(operation: Operation, given: list[Array], missing: int) -> Array:
    """Ranks that have joined count as zeros."""
    parts = [scaled(each, operation.prescale) for each in given]
    reduce = REDUCE[operation.reduce]
    result = parts[0]
    for each in parts[1:]:
        result = reduce(result, each)
    if missing and operation.reduce != "Average":
        result = reduce(result, np.zeros_like(result))
    if operation.reduce == "Average":
        result = scaled(np.asarray(result), 1.0 / len(operation.members))
    return np.asarray(scaled(np.asarray(result), operation.postscale), given[0].dtype)


def _combine(a: Array, b: Array) -> Array:
    dot, norm_a, norm_b = float(np.vdot(a, b)), float(np.vdot(a, a)), float(np.vdot(b, b))
    smallest = float(np.sqrt(np.finfo(np.float64).tiny))
    return np.asarray(
        (1 - dot / (2 * norm_a) if norm_a >= smallest else 1.0) * a
        + (1 - dot / (2 * norm_b) if norm_b >= smallest else 1.0) * b
    )


def _tree(values: list[Array]) -> Array:
    distance = 1
    while distance < len(values):
        for i in range(0, len(values) - distance, 2 * distance):
            values[i] = _combine(values[i], values[i + distance])
        distance *= 2
    return values[0]


def _adasum(given: list[Array], hosts: tuple[int, ...]) -> Array:
    values = [each.astype(np.float64) for each in given]
    of_hosts, first = [], 0
    for count in hosts:
        of_hosts.append(_tree(values[first : first + count]))
        first += count
    return _tree(of_hosts)


def _rows_of(place: int, rows: int, size: int) -> slice:
    """The first ranks get one row more."""
    each, more = divmod(rows, size)
    start = place * each + min(place, more)
    return slice(start, start + each + (place < more))


def _exchanged(operation: Operation, given: list[Array], place: int) -> list[Array]:
    size = len(operation.members)
    splits = operation.splits or tuple((rows // size,) * size for rows in operation.rows[0])
    parts = []
    for source, values in enumerate(given):
        start = sum(splits[source][:place])
        parts.append(values[start : start + splits[source][place]])
    return [np.concatenate(parts), np.array([each[place] for each in splits], np.int32)]


def expected(
    operation: Operation, rank: int, turn: int, hosts: tuple[int, ...], present: tuple[int, ...] | None = None
) -> list[Array]:
    """What a rank gets; `present` are those that have not joined, where not all members are."""
    givers = operation.members if present is None else present
    given = [inputs(operation, member, turn) for member in givers]
    place = operation.members.index(rank)
    if operation.verb == "broadcast":
        return given[operation.members.index(operation.root)]
    if operation.verb == "alltoall":
        return _exchanged(operation, [each[0] for each in given], place)
    results = []
    for index in range(len(operation.shapes)):
        of_ranks = [each[index] for each in given]
        if operation.verb == "allgather":
            results.append(np.concatenate(of_ranks))
        elif operation.reduce == "Adasum":
            results.append(_adasum(of_ranks, hosts).astype(of_ranks[0].dtype))
        else:
            whole = _reduced(operation, of_ranks, len(operation.members) - len(givers))
            is_part = operation.verb == "reducescatter"
            results.append(whole[_rows_of(place, len(whole), len(operation.members))] if is_part else whole)
    return results


def _tolerance(operation: Operation, name: str) -> float:
    if operation.reduce == "Adasum":
        return ADASUM_TOLERANCE[name] * len(operation.members)
    if operation.reduce == "Average" and len(operation.members) in (3, 5, 6):
        return TOLERANCE.get(name, 0.0)
    return 0.0


def compare(operation: Operation, results: list[Array], wanted: list[Array]) -> None:
    """Difference says where results are not as they should be."""
    if len(results) != len(wanted):
        raise Difference(f"{len(results)} results, not {len(wanted)}")
    for index, (result, want) in enumerate(zip(results, wanted, strict=True)):
        if result.dtype != want.dtype or result.shape != want.shape:
            raise Difference(f"tensor {index} is {result.dtype}{result.shape}, not {want.dtype}{want.shape}")
        if np.array_equal(result, want):
            continue
        tolerance = _tolerance(operation, want.dtype.name)
        got, right = result.ravel(), want.ravel()
        if tolerance:
            wide = np.complex128 if want.dtype.kind == "c" else np.float64
            scale = np.abs(right.astype(wide)) + (1 if operation.reduce == "Adasum" else 0)
            differ = ~(np.abs(got.astype(wide) - right.astype(wide)) <= tolerance * scale)
        else:
            differ = got != right
        places = np.flatnonzero(differ)
        if len(places):
            some = places[:5].tolist()
            raise Difference(
                f"tensor {index} of {len(results)}: {len(places)} of {len(got)} elements differ, places {places[0]} to "
                f"{places[-1]}; at {some} are {got[some].tolist()}, not {right[some].tolist()}"
            )
