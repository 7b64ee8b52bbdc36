"""Random programs of verbs, and what each rank gives and must get: NumPy, no communication.

Values are small whole numbers, so every order of adding gives the same bits; only averages have a tolerance.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import jax.numpy as jnp
import numpy as np

import horovod.jax as hvd

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]

FULL = os.environ.get("TEST_FULL") == "1"
SHAPES: list[Shape] = [(), (0,), (1,), (3,), (0, 4), (5, 0, 2), (2, 3, 4), (17,), (33, 7), (1000,)]
LARGE: list[Shape] = [(70_001,), (300, 301), (1 << 20,)] if FULL else [(70_001,), (300, 301)]
ROWS: list[Shape] = [(), (2,), (0,), (3, 5), (257,)]  # without the first dimension
REDUCED = ["float32", "float16", "bfloat16", "int32", "int16", "int8", "uint8", "uint16", "uint32", "bool", "complex64"]
MOVED = [*REDUCED, "float8_e4m3fn", "float8_e5m2"]
REDUCTIONS = {name: getattr(hvd, name) for name in ("Sum", "Average", "Min", "Max", "Product")}
PIECES = {"Sum": np.add, "Average": np.add, "Min": np.minimum, "Max": np.maximum, "Product": np.multiply}
# How it is called. async: rank by rank in another order; start: likewise, inside one compiled function.
MODES = {
    "allreduce": ["eager", "async", "jit", "jit", "scan", "vmap", "start", "grad"],
    "broadcast": ["eager", "async", "jit", "scan", "vmap"],
    "allgather": ["eager", "async", "jit"],
    "alltoall": ["eager", "async", "jit"],
    "reducescatter": ["eager", "async", "jit"],
}
REPEATED = 3  # by scan, and the batch of vmap


@dataclass(frozen=True)
class RandomCall:
    """One verb on one array, or on several as a pytree."""

    number: int
    verb: str
    mode: str
    name: str | None
    dtypes: tuple[str, ...]
    shapes: tuple[Shape, ...]  # of each array; without rows where they differ from rank to rank
    rows: tuple[int, ...]  # of each member, for all arrays; () if that is part of the shapes
    splits: tuple[tuple[int, ...], ...]  # of each member, for each member; () if even
    reduce: str
    prescale: float
    postscale: float
    root: int
    set_number: int
    members: tuple[int, ...]
    seed: int

    def shape(self, index: int, rank: int) -> Shape:
        """Of an array that a rank gives."""
        own = self.shapes[index]
        shape = (self.rows[self.members.index(rank)], *own) if self.rows else own
        return (REPEATED, *shape) if self.mode in ("scan", "vmap") else shape

    def given(self, rank: int) -> list[Array]:
        """What a rank gives."""
        return [self._values(index, rank) for index in range(len(self.shapes))]

    def _values(self, index: int, rank: int) -> Array:
        chance = np.random.default_rng([self.seed, index, rank])
        dtype = jnp.dtype(self.dtypes[index])
        signed = jnp.issubdtype(dtype, jnp.signedinteger) or jnp.issubdtype(dtype, jnp.inexact)
        least, most = (1, 2) if self.reduce == "Product" else (-3 if signed else 0, 3)
        numbers = chance.integers(least, most + 1, self.shape(index, rank))
        if dtype == jnp.bool_:
            numbers = numbers > 1
        if dtype.kind == "c":
            numbers = numbers + 1j * chance.integers(least, most + 1, numbers.shape)
        return np.asarray(numbers).astype(dtype)

    def expected(self, rank: int) -> list[Array]:
        """What a rank must get."""
        place = self.members.index(rank)
        parts = [self.given(member) for member in self.members]
        by_array = [[part[i] for part in parts] for i in range(len(self.shapes))]
        if self.verb == "allreduce":
            return [self._reduced(each) for each in by_array]
        if self.verb == "broadcast":
            return [each[self.members.index(self.root)] for each in by_array]
        if self.verb == "allgather":
            return [np.concatenate(each) for each in by_array]
        if self.verb == "reducescatter":
            return [np.array_split(self._reduced(each), len(self.members))[place] for each in by_array]
        return [np.concatenate([self._sent(part, i, place) for i, part in enumerate(each)]) for each in by_array]

    def _sent(self, array: Array, sender: int, receiver: int) -> Array:
        splits = self.splits[sender] if self.splits else [len(array) // len(self.members)] * len(self.members)
        first = sum(splits[:receiver])
        return array[first : first + splits[receiver]]

    def _reduced(self, parts: Sequence[Array]) -> Array:
        dtype = parts[0].dtype
        if dtype == jnp.bool_:
            return PIECES[self.reduce].reduce(parts)
        wide = np.complex128 if dtype.kind == "c" else np.float64 if dtype.kind not in "iu" else np.int64
        total = PIECES[self.reduce].reduce([each.astype(wide) for each in parts])
        if self.prescale == self.postscale == 1.0 and self.reduce != "Average":
            return np.asarray(total).astype(dtype)
        factor = self.prescale * self.postscale / (len(parts) if self.reduce == "Average" else 1)
        scaled = total * (1.0 / len(parts)) if wide is np.int64 else total * factor
        return np.asarray(np.trunc(scaled) if wide is np.int64 else scaled).astype(dtype)

    def check(self, results: Sequence[Any], rank: int) -> None:
        """AssertionError if that is not what the rank must get."""
        for got, wanted in zip(results, self.expected(rank), strict=True):
            assert got.dtype == wanted.dtype and got.shape == wanted.shape, (got.dtype, got.shape, wanted.shape)
            tolerance = 0.0
            if self.reduce == "Average" and wanted.dtype.kind not in "biu":
                tolerance = 8 * float(jnp.finfo(wanted.dtype).eps)
            kind = np.complex128 if wanted.dtype.kind == "c" else np.float64
            got, wanted = np.asarray(got).astype(kind), wanted.astype(kind)
            np.testing.assert_allclose(got, wanted, rtol=tolerance, atol=tolerance)


class Generator:
    """Makes programs: the same on all ranks for the same seed."""

    def __init__(self, sets: Sequence[tuple[int, ...]]) -> None:
        self._sets = sets

    def program(self, seed: int, number: int) -> list[RandomCall]:
        """Some calls, in the order in which those run that run at once."""
        chance = Random(f"{seed}.{number}")
        return [self._call(chance, number, i) for i in range(chance.randint(3, 8))]

    def _call(self, chance: Random, program: int, number: int) -> RandomCall:
        verb = chance.choices(list(MODES), weights=[5, 2, 2, 2, 2])[0]
        mode = chance.choice(MODES[verb])
        set_number = chance.choice([0, 0, *range(len(self._sets))])
        members = self._sets[set_number]
        count = chance.choice([1, 1, 2, 5]) if verb != "alltoall" else 1
        reducing = verb in ("allreduce", "reducescatter")
        reduce = self._reduction(chance, verb, mode) if reducing else ""
        dtypes = tuple(self._dtype(chance, reducing, reduce, mode) for _ in range(count))
        floating = all(np.dtype(each).kind in "fcV" for each in map(jnp.dtype, dtypes))
        scales = reducing and floating and reduce in ("Sum", "Average")
        shapes, rows, splits = self._shapes(chance, verb, mode, count, len(members))
        may_do_without_name = mode in ("jit", "scan", "vmap")
        return RandomCall(
            number=number,
            verb=verb,
            mode=mode,
            name=None if may_do_without_name and chance.random() < 0.3 else f"random.{program % 3}.{number}",
            dtypes=dtypes,
            shapes=shapes,
            rows=rows,
            splits=splits,
            reduce=reduce,
            prescale=chance.choice([1.0, 0.5, 2.0]) if scales else 1.0,
            postscale=chance.choice([1.0, 0.25, 4.0]) if scales else 1.0,
            root=chance.choice(members),
            set_number=set_number,
            members=members,
            seed=chance.getrandbits(32),
        )

    def _reduction(self, chance: Random, verb: str, mode: str) -> str:
        linear = verb == "reducescatter" or mode == "grad"
        return chance.choice(["Sum", "Average"] if linear else ["Sum", "Sum", *REDUCTIONS])

    def _dtype(self, chance: Random, reducing: bool, reduce: str, mode: str) -> str:
        if mode == "grad":
            return "float32"
        if not reducing:
            return chance.choice(MOVED)
        unable = {
            "Sum": ["bool"],
            "Average": ["bool", "uint32", "int16", "uint16"],
            "Min": ["complex64", "uint32"],
            "Max": ["complex64", "uint32"],
            "Product": ["bool", "complex64"],
        }[reduce]
        return chance.choice([each for each in REDUCED if each not in unable])

    def _shapes(
        self, chance: Random, verb: str, mode: str, count: int, ranks: int
    ) -> tuple[tuple[Shape, ...], tuple[int, ...], tuple[tuple[int, ...], ...]]:
        if verb in ("allreduce", "broadcast"):
            some = SHAPES if chance.random() < 0.9 else LARGE
            return tuple(chance.choice(some) for _ in range(count)), (), ()
        shapes = tuple(chance.choice(ROWS) for _ in range(count))
        if verb == "reducescatter":
            return shapes, (chance.choice([0, 1, ranks, 2 * ranks + 1, 50]),) * ranks, ()
        if verb == "allgather":
            same = (chance.choice([0, 1, 4, 300]),) * ranks
            return shapes, same if mode == "jit" else tuple(chance.randint(0, 5) for _ in range(ranks)), ()
        if chance.random() < 0.5:
            return shapes, (chance.choice([0, 1, 3]) * ranks,) * ranks, ()
        splits = tuple(tuple(chance.randint(0, 4) for _ in range(ranks)) for _ in range(ranks))
        return shapes, tuple(map(sum, splits)), splits


def gradient_weights(call: RandomCall, rank: int) -> list[Array]:
    """For the mode `grad`: what the results are multiplied by before they are summed up."""
    return [np.full(math.prod(shape), rank + 1.0, np.float32).reshape(shape) for shape in call.shapes]
