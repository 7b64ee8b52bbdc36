"""Random operations: what all ranks have to know about one."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from program import Limits

try:
    import ml_dtypes

    HAS_BFLOAT16 = bool(ml_dtypes.bfloat16)
except ImportError:  # bfloat16 is not tested then
    HAS_BFLOAT16 = False

Shape = tuple[int, ...]

INTEGERS = ("uint8", "int8", "uint16", "int16", "int32", "int64")
FLOATS = ("float16", "float32", "float64", *(("bfloat16",) if HAS_BFLOAT16 else ()))
COMPLEX = ("complex64", "complex128")
NOT_SCALABLE = ("uint16", "int16", "bool")
ITEM = {"bool": 1, "bfloat16": 2, "complex64": 8, "complex128": 16}
ITEM |= {name: int(name.lstrip("uintfloa")) // 8 for name in (*INTEGERS, "float16", "float32", "float64")}
EVERY = (*INTEGERS, *FLOATS, "float32", "float32", "bool", *COMPLEX)


@dataclass(frozen=True)
class Operation:
    """A collective operation. `rows` and `splits` have an entry for each member, where members differ."""

    key: int  # of its data
    verb: str
    name: str | None
    members: tuple[int, ...]
    is_world: bool
    dtypes: tuple[str, ...] = ()  # of each tensor; several are a group
    shapes: tuple[Shape, ...] = ()
    rows: tuple[tuple[int, ...], ...] = ()  # allgather: of each tensor and member, in place of the first dimension
    splits: tuple[tuple[int, ...], ...] = ()  # alltoall: rows from each member to each; none means even parts
    reduce: str = "Sum"
    prescale: float = 1.0
    postscale: float = 1.0
    grouped: bool = False
    in_place: bool = False
    root: int = 0
    wrong: str = ""  # what `odd` does differently, so that all members get an error
    odd: int = -1

    def __str__(self) -> str:
        """In a line."""
        what = ", ".join(f"{dtype}{list(shape)}" for dtype, shape in zip(self.dtypes, self.shapes, strict=True))
        more = [f"name={self.name}", f"key={self.key}"]
        if not self.is_world:
            more.append(f"set={list(self.members)}")
        if self.verb in ("allreduce", "reducescatter"):
            more += [
                self.reduce,
                *(f"{k}={v}" for k, v in (("pre", self.prescale), ("post", self.postscale)) if v != 1),
            ]
        if self.verb.startswith("broadcast"):
            more.append(f"root={self.root}")
        more += [f"rows={self.rows}"] * bool(self.rows) + [f"splits={self.splits}"] * bool(self.splits)
        more += ["grouped"] * self.grouped + ["in place"] * self.in_place
        more += [f"rank {self.odd} has another {self.wrong}"] * bool(self.wrong)
        return f"{self.verb}({what}; {', '.join(more)})"


Make = Callable[..., Operation]


def names(chance: random.Random) -> Iterator[str]:
    """Names for the operations of a phase. There are few, so that later phases use them again, for something else."""
    some = [f"t{number}" for number in range(24)]
    chance.shuffle(some)
    return iter(some)


def choose_verb(chance: random.Random, waits: bool, first_lane: bool) -> Make:
    """Objects have no handles; barriers have no names, so one thread only may call them."""
    makers: list[Make] = [allreduce, allgather, broadcast, alltoall, reducescatter, adasum]
    weights = [46, 14, 14, 9, 12, 3]
    if waits:
        makers += [broadcast_object, allgather_object]
        weights += [4, 4]
    if first_lane:
        makers.append(barrier)
        weights.append(8)
    return chance.choices(makers, weights)[0]


def _elements(chance: random.Random, item: int, limits: Limits) -> int:
    """Nothing, one, a few, odd numbers, numbers around limits of the engine, many, and rarely very many."""
    kind = chance.choices(range(8), (5, 10, 40, 26, 8, 8, 2, 0.04))[0]
    if kind in (0, 1):
        return kind
    if kind == 5:
        limit = chance.choice((64, 4096, 32768, 65536, 131072))
        count = limit // item * chance.choice((1, 1, 1, 2, 3)) + chance.randint(-1, 1)
    else:
        low, high = {2: (2, 64), 3: (65, 4096), 4: (4097, 40_000), 6: (40_001, 300_000), 7: (1 << 20, 5 << 20)}[kind]
        count = chance.randint(low, high)
    return min(count, limits.largest // item)


def _shape(chance: random.Random, count: int) -> Shape:
    """One of about so many elements."""
    dimensions = chance.choice((1, 1, 1, 2, 3))
    if dimensions == 1 or count < 2:
        return () if count == 1 and chance.random() < 0.3 else (count,)
    column = chance.choice((1, 2, 3, 7))
    return (count // column, column) if dimensions == 2 else (max(1, count // column // 2), 2, column)


def _tensors(
    chance: random.Random, limits: Limits, types: tuple[str, ...], least_dimensions: int = 0
) -> tuple[bool, tuple[str, ...], tuple[Shape, ...]]:
    grouped = chance.random() < 0.15
    count = chance.randint(1, 5) if grouped else 1
    dtypes = tuple(chance.choice(types) for _ in range(count))
    shapes = tuple(_shape(chance, _elements(chance, ITEM[dtype], limits)) for dtype in dtypes)
    return grouped, dtypes, tuple(shape if len(shape) >= least_dimensions else (1,) for shape in shapes)


def _scales(chance: random.Random, dtypes: tuple[str, ...], reduce: str, size: int) -> tuple[float, float]:
    if any(dtype in NOT_SCALABLE for dtype in dtypes) or chance.random() < 0.6:
        return 1.0, 1.0
    if reduce == "Product":
        return 1.0, 1.0  # does not fit into eight bits any more
    if reduce == "Average" and size not in (1, 2, 4):
        return 1.0, 1.0  # not exact any more
    if reduce == "Average" and any(dtype in INTEGERS for dtype in dtypes):
        return 1.0, 1.0  # in which step an integer is truncated is not said
    return chance.choice((1.0, 2.0, 0.5)), chance.choice((1.0, 2.0, 0.5))


def _reduction(chance: random.Random, dtypes: tuple[str, ...], size: int, some: tuple[str, ...]) -> str:
    allowed = [reduce for reduce in some if reduce == "Sum" or not any(dtype in COMPLEX for dtype in dtypes)]
    if size > 1 and any(dtype in NOT_SCALABLE for dtype in dtypes):
        allowed = [reduce for reduce in allowed if reduce != "Average"]
    return chance.choice(allowed)


def _mistake(chance: random.Random, members: tuple[int, ...], kinds: tuple[str, ...]) -> tuple[str, int]:
    if len(members) < 2 or chance.random() > 0.04:
        return "", -1
    return chance.choice(kinds), chance.choice(members)


def allreduce(
    chance: random.Random,
    key: int,
    name: str | None,
    members: tuple[int, ...],
    limits: Limits,
    is_world: bool = True,
    joined: bool = False,
) -> Operation:
    grouped, dtypes, shapes = _tensors(chance, limits, EVERY)
    reduce = _reduction(chance, dtypes, len(members), ("Sum", "Sum", "Average", "Min", "Max", "Product"))
    prescale, postscale = _scales(chance, dtypes, reduce, len(members))
    reductions = () if any(dtype in COMPLEX for dtype in dtypes) else ("reduction",)
    wrong, odd = ("", -1) if joined else _mistake(chance, members, ("type", "length", *reductions))
    return Operation(
        key=key,
        verb="allreduce",
        name=name,
        members=members,
        is_world=is_world,
        dtypes=dtypes,
        shapes=shapes,
        reduce=reduce,
        prescale=prescale,
        postscale=postscale,
        grouped=grouped,
        in_place=chance.random() < 0.5,
        wrong=wrong,
        odd=odd,
    )


def adasum(
    chance: random.Random,
    key: int,
    name: str | None,
    members: tuple[int, ...],
    limits: Limits,
    is_world: bool = True,
) -> Operation:
    """On the world only: for another set this is a sum."""
    grouped, dtypes, shapes = _tensors(chance, limits, ("float16", "float32", "float64"))
    return Operation(
        key=key,
        verb="allreduce",
        name=name,
        members=members,
        is_world=is_world,
        dtypes=dtypes,
        shapes=shapes,
        reduce="Adasum" if is_world else "Sum",
        grouped=grouped,
        in_place=chance.random() < 0.5,
    )


def allgather(
    chance: random.Random, key: int, name: str | None, members: tuple[int, ...], limits: Limits, is_world: bool = True
) -> Operation:
    grouped, dtypes, shapes = _tensors(chance, limits, EVERY, least_dimensions=1)
    equal = chance.random() < 0.4
    rows = tuple(tuple(shape[0] if equal else chance.randint(0, max(1, shape[0])) for _ in members) for shape in shapes)
    wrong, odd = _mistake(chance, members, ("type", "dimensions"))
    return Operation(
        key=key,
        verb="allgather",
        name=name,
        members=members,
        is_world=is_world,
        dtypes=dtypes,
        shapes=shapes,
        rows=rows,
        grouped=grouped,
        wrong=wrong,
        odd=odd,
    )


def broadcast(
    chance: random.Random, key: int, name: str | None, members: tuple[int, ...], limits: Limits, is_world: bool = True
) -> Operation:
    dtype = chance.choice(EVERY)
    wrong, odd = _mistake(chance, members, ("type", "length", "root"))
    return Operation(
        key=key,
        verb="broadcast",
        name=name,
        members=members,
        is_world=is_world,
        dtypes=(dtype,),
        shapes=(_shape(chance, _elements(chance, ITEM[dtype], limits)),),
        root=chance.choice(members),
        in_place=chance.random() < 0.5,
        wrong=wrong,
        odd=odd,
    )


def alltoall(
    chance: random.Random, key: int, name: str | None, members: tuple[int, ...], limits: Limits, is_world: bool = True
) -> Operation:
    dtype = chance.choice(EVERY)
    column = chance.choice(((), (), (2,), (3, 2)))
    size = len(members)
    most = max(1, _elements(chance, ITEM[dtype], limits) // size)
    splits: tuple[tuple[int, ...], ...] = ()
    rows: tuple[tuple[int, ...], ...] = ()
    if chance.random() < 0.7:
        splits = tuple(tuple(chance.choice((0, chance.randint(0, most))) for _ in members) for _ in members)
        rows = (tuple(sum(each) + chance.choice((0, 0, 1)) for each in splits),)
    else:
        rows = ((chance.choice((0, 1, most)) * size,) * size,)
    wrong, odd = _mistake(chance, members, ("type",))
    return Operation(
        key=key,
        verb="alltoall",
        name=name,
        members=members,
        is_world=is_world,
        dtypes=(dtype,),
        shapes=((0, *column),),
        rows=rows,
        splits=splits,
        wrong=wrong,
        odd=odd,
    )


def reducescatter(
    chance: random.Random, key: int, name: str | None, members: tuple[int, ...], limits: Limits, is_world: bool = True
) -> Operation:
    grouped, dtypes, shapes = _tensors(chance, limits, EVERY, least_dimensions=1)
    reduce = _reduction(chance, dtypes, len(members), ("Sum", "Average"))
    prescale, postscale = _scales(chance, dtypes, reduce, len(members))
    reductions = () if any(dtype in NOT_SCALABLE for dtype in dtypes) else ("reduction",)
    wrong, odd = _mistake(chance, members, ("type", "length", *reductions))
    return Operation(
        key=key,
        verb="reducescatter",
        name=name,
        members=members,
        is_world=is_world,
        dtypes=dtypes,
        shapes=shapes,
        reduce=reduce,
        prescale=prescale,
        postscale=postscale,
        grouped=grouped,
        wrong=wrong,
        odd=odd,
    )


def broadcast_object(
    chance: random.Random, key: int, name: str | None, members: tuple[int, ...], limits: Limits, is_world: bool = True
) -> Operation:
    return Operation(key, "broadcast_object", name, members, is_world, root=chance.choice(members))


def allgather_object(
    chance: random.Random, key: int, name: str | None, members: tuple[int, ...], limits: Limits, is_world: bool = True
) -> Operation:
    return Operation(key, "allgather_object", name, members, is_world)


def barrier(
    chance: random.Random, key: int, name: str | None, members: tuple[int, ...], limits: Limits, is_world: bool = True
) -> Operation:
    return Operation(key, "barrier", None, members, is_world)
